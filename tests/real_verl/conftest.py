"""verl's own engine, trainer and configurations, on CPUs; where verl is not installed nothing here is collected."""

import os
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

HERE = Path(__file__).parent
if find_spec("verl") is None:
    collect_ignore_glob = ["*.py"]
else:
    # verl knows no CPUs; it reads these when it is imported, in other processes too.
    os.environ["VERL_PLATFORM"] = "cpu"
    os.environ["VERL_USE_EXTERNAL_MODULES"] = "cpu_platform"
    os.environ["PYTHONPATH"] = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
    sys.path.insert(0, str(HERE))


@pytest.fixture(scope="session", autouse=True)
def _process_group(tmp_path_factory):
    import torch

    store = tmp_path_factory.mktemp("group") / "store"
    torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


@pytest.fixture(scope="session")
def on_trl(tmp_path_factory):
    """One step of GRPO by TRL with our credit, and the same step without, on the same responses."""
    from trl_step import trl_step

    return {rule: trl_step(rule, tmp_path_factory.mktemp(rule)) for rule in ("atrl", "uniform")}


@pytest.fixture
def make_engine(monkeypatch):
    """A function from `use_remove_padding` to verl's FSDP2 engine with the mini base; what verl patches is mended."""
    from verl_step import engine, keep_what_verl_patches, stand_in_for_flash_attention

    keep_what_verl_patches(monkeypatch)
    stand_in_for_flash_attention(monkeypatch)
    return engine
