"""verl finds the plug-in, takes its engine and its trainer, and refuses what they cannot do."""

import json
import os
import subprocess
import sys

import pytest
from omegaconf import OmegaConf
from verl.trainer.ppo.v1 import get_trainer_cls
from verl.utils.import_utils import load_extern_object
from verl.workers.engine import EngineRegistry
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead
from verl_step import batch_of, scored

from atrl_bench.engines.verl import plugin
from atrl_bench.engines.verl.engine import TokenCreditEngine
from atrl_bench.engines.verl.trainer import TokenCreditTrainer
from atrl_bench.errors import InvalidFileError, PluginError

REWARD = "pkg://atrl_bench.training.rewards.verl"  # as in recipes/verl/base.yaml
# What `import verl` alone does; the entry point is that of the installed package.
AS_A_USER = "import verl, sys; print('atrl_bench.engines.verl.plugin' in sys.modules)"
CREDIT_ALONE = """
import json, sys, torch
from atrl_bench.credit import AttentionRows, token_credit
rows_TS = torch.rand(24, 60, generator=torch.Generator().manual_seed(0)).softmax(1)
visual_S = torch.arange(60) < 20
credit = token_credit(AttentionRows(rows_TS, visual_S), rule="atrl")
ours = [name for name in ("transformers", "trl", "pydantic", "datasets", "verl") if name in sys.modules]
print(json.dumps({"mean": credit.credit_T.mean().item(), "std": credit.credit_T.std().item(), "loaded": ours}))
"""


def python(code: str, **variables: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=os.environ | variables, check=True
    )
    return done.stdout.splitlines()[-1]


def test_credit_is_computed_here_with_torch_numpy_and_pymetis_alone():
    result = json.loads(python(CREDIT_ALONE))
    assert result["mean"] == pytest.approx(1.0, abs=1e-6)
    assert result["std"] > 0
    assert result["loaded"] == []


def test_verls_loader_finds_the_reward_and_it_grades():
    compute_score = load_extern_object(REWARD, "compute_score")
    assert compute_score("virl39k", r"so \boxed{\frac{1}{2}}", "0.5") == {"score": 1.0, "acc": 1.0}
    assert compute_score("virl39k", "The answer is 7.", "8") == {"score": -1.0, "acc": -1.0}


def test_verl_loads_the_plugin_by_its_entry_point_and_by_its_module():
    assert python(AS_A_USER) == "True"
    assert python(AS_A_USER, VERL_USE_EXTERNAL_PLUGINS="none") == "False"
    modules = f"cpu_platform,{plugin.__name__}"
    assert python(AS_A_USER, VERL_USE_EXTERNAL_PLUGINS="none", VERL_USE_EXTERNAL_MODULES=modules) == "True"


@pytest.mark.parametrize(("device", "vendor"), [("cpu", "none"), ("cuda", "nvidia")])
def test_verl_takes_our_engine_and_our_trainer(monkeypatch, device, vendor):
    monkeypatch.setenv("VERL_ENGINE_DEVICE", device)
    monkeypatch.setenv("VERL_ENGINE_VENDOR", vendor)
    assert EngineRegistry.get_engine_cls("language_model", "fsdp2") is TokenCreditEngine
    assert get_trainer_cls("sync") is TokenCreditTrainer


def test_an_engine_that_is_not_ours_is_noticed(monkeypatch):
    monkeypatch.setitem(EngineRegistry._engines["language_model"]["fsdp2"], "cpu", FSDPEngineWithLMHead)
    with pytest.raises(PluginError, match="FSDPEngineWithLMHead as the fsdp2 engine"):
        plugin.check_registration()


@pytest.mark.parametrize(
    ("setting", "value", "needed"),
    [
        ("algorithm.rollout_correction.bypass_mode", True, "False"),
        ("actor_rollout_ref.actor.fsdp_config.ulysses_sequence_parallel_size", 2, "1"),
        ("actor_rollout_ref.actor.strategy", "megatron", "fsdp2"),
        ("trainer.v1.trainer_mode", "separate_async", "sync"),
        ("trainer.use_v1", False, "True"),
    ],
)
def test_the_trainer_refuses_what_leaves_no_rows_with_the_setting_to_change(setting, value, needed):
    config = OmegaConf.create({"token_credit": {"rule": "atrl"}})
    OmegaConf.update(config, setting, value)
    with pytest.raises(InvalidFileError) as refused:
        TokenCreditTrainer(config)
    assert refused.value.next_step == f"set {setting}={needed}"


def test_the_engine_refuses_a_rule_that_needs_a_second_pass(on_trl, make_engine):
    batch = batch_of(on_trl["atrl"], use_remove_padding=False)
    with pytest.raises(InvalidFileError, match="visual_dependency"):
        scored(make_engine(use_remove_padding=False), batch, "visual_dependency")


def test_the_engine_refuses_ulysses(on_trl, make_engine, monkeypatch):
    made = make_engine(use_remove_padding=False)
    monkeypatch.setattr(made, "use_ulysses_sp", True)
    with pytest.raises(InvalidFileError) as refused:
        scored(made, batch_of(on_trl["atrl"], use_remove_padding=False), "atrl")
    assert refused.value.next_step.endswith("ulysses_sequence_parallel_size=1")
