"""The configurations that `train --rollouts verl` writes are ones that verl accepts, at the paper's sizes."""

import pytest
import yaml
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf
from verl.trainer.ppo.core_algos import get_policy_loss_fn
from verl.trainer.ppo.utils import need_critic, need_reference_policy
from verl.utils.config import omega_conf_to_dataclass, validate_config

from atrl_bench.engines.verl.settings import VerlCredit, refuse_what_cannot_be_credited
from atrl_bench.profiles import load_profile
from atrl_bench.training.recipe import load_recipe
from atrl_bench.training.verl import verl_configuration

SIZES = {"7B": "Qwen/Qwen2.5-VL-7B-Instruct", "32B": "Qwen/Qwen2.5-VL-32B-Instruct"}


def composed(tmp_path, recipe, model):
    profile = load_profile("paper").model_copy(update={"model": model})
    content = verl_configuration(recipe, profile, num_rollouts=75, seed=0, folder=tmp_path, gpus=8)
    (tmp_path / "verl.yaml").write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    with initialize_config_dir(str(tmp_path), version_base=None):
        return compose("verl")


@pytest.mark.parametrize("credit", ["uniform", "atrl"])
@pytest.mark.parametrize("name", ["grpo", "dapo", "gspo", "sapo"])
@pytest.mark.parametrize("size", SIZES)
def test_verls_own_validation_accepts_it(tmp_path, size, name, credit):
    recipe = load_recipe(name, credit=credit)
    config = composed(tmp_path, recipe, SIZES[size])
    has_reference = need_reference_policy(config)
    validate_config(config, use_reference_policy=has_reference, use_critic=need_critic(config))
    assert has_reference == bool(recipe.kl_coef)
    assert not need_critic(config)
    for part in ("actor_rollout_ref.actor", "actor_rollout_ref.rollout", "algorithm"):
        omega_conf_to_dataclass(OmegaConf.select(config, part))
    assert callable(get_policy_loss_fn(config.actor_rollout_ref.actor.policy_loss.loss_mode))
    refuse_what_cannot_be_credited(config)
    chosen = VerlCredit.of(config)
    assert (chosen is None) == (credit == "uniform")
    assert chosen is None or chosen.rule == "atrl"


def test_the_schedule_and_the_batch_are_the_papers(tmp_path):
    """512 problems of 8 responses a rollout, four updates of 128 problems each; one under schedule `strict`."""
    for schedule, mini_batch in (("minibatch4", 128), ("strict", 512)):
        config = composed(tmp_path, load_recipe("sapo", schedule=schedule), SIZES["7B"])
        actor = omega_conf_to_dataclass(config.actor_rollout_ref.actor)
        assert (config.data.train_batch_size, config.actor_rollout_ref.rollout.n) == (512, 8)
        assert (actor.ppo_mini_batch_size, actor.policy_loss.loss_mode, actor.tau_neg) == (mini_batch, "sapo", 1.05)
        assert actor.optim.lr == 1e-6
        assert (actor.engine.strategy, actor.engine.ulysses_sequence_parallel_size) == ("fsdp2", 1)
