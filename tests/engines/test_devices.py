"""Which GPUs a command sees, from the driver's files, CUDA_VISIBLE_DEVICES and its own options."""

import math
import os
import stat

import pytest

from atrl_bench.engines.devices import Devices, Machine, _driver_sizes, environment, machine, memory_gb, visible_gpus
from atrl_bench.errors import InvalidFileError

EIGHT = [str(number) for number in range(8)]


@pytest.fixture
def with_gpus(tmp_path):
    """Return a function that makes the files of so many GPUs."""

    def make(count: int, first: int = 0):
        (tmp_path / "dev").mkdir()
        for name in ("nvidiactl", "nvidia-uvm", *(f"nvidia{first + number}" for number in range(count))):
            (tmp_path / "dev" / name).touch()
        return tmp_path

    return make


def test_every_gpu_is_visible_unless_the_environment_says_otherwise(with_gpus):
    root = with_gpus(8)
    assert visible_gpus({}, root) == EIGHT
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": "4, 2"}, root) == ["4", "2"]
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": ""}, root) == visible_gpus({"CUDA_VISIBLE_DEVICES": "-1"}, root) == []
    # As in CUDA, what is no GPU ends the list.
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": "1,8,2"}, root) == ["1"]
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": "1,1"}, root) == ["1"]


def test_gpus_and_their_slices_may_be_named_by_uuid(with_gpus):
    names = ["GPU-8932f937-d72c", "MIG-1c3a5bd8-22aa"]
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": ",".join(names)}, with_gpus(1)) == names


def test_a_container_numbers_its_own_gpus_from_zero(with_gpus):
    root = with_gpus(2, first=6)
    for number in range(8):
        (root / "proc/driver/nvidia/gpus" / f"0000:{number}").mkdir(parents=True)
    assert visible_gpus({}, root) == ["0", "1"]


def test_without_device_files_the_driver_is_asked_and_without_a_driver_there_is_none(tmp_path):
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": "0"}, tmp_path) == []
    for number in range(3):
        (tmp_path / "proc/driver/nvidia/gpus" / f"0000:{number}").mkdir(parents=True)
    assert visible_gpus({}, tmp_path) == ["0", "1", "2"]


def test_the_option_says_how_many_or_which_of_the_visible_ones():
    visible = ["4", "5", "6", "GPU-8932"]
    assert machine(None, None, visible=visible) == Machine(tuple(visible))
    assert machine("2", None, visible=visible) == Machine(("4", "5"), is_chosen=True)
    assert machine("0,3", None, visible=visible) == Machine(("4", "GPU-8932"), is_chosen=True)
    assert machine("GPU-8932", None, visible=visible) == Machine(("GPU-8932",), is_chosen=True)
    assert machine("2,", None, visible=visible) == Machine(("6",), is_chosen=True)
    assert machine("0", None, visible=visible) == Machine(is_chosen=True)
    assert machine(None, 4, visible=visible) == Machine(processes=4, is_chosen=True)


@pytest.mark.parametrize("text", ["5", "0,4", "1,1", "four", ""])
def test_gpus_that_are_not_there_are_refused(text):
    with pytest.raises(InvalidFileError, match="4 GPUs can be used here"):
        machine(text, None, visible=EIGHT[:4])


def test_gpus_and_processes_of_the_cpu_exclude_each_other():
    with pytest.raises(InvalidFileError, match="exclude each other"):
        machine("2", 2, visible=EIGHT)


def test_work_sees_its_own_gpus_and_work_without_one_sees_none():
    assert environment(Devices(("4", "6")))["CUDA_VISIBLE_DEVICES"] == "4,6"
    assert environment(Devices(processes=2))["CUDA_VISIBLE_DEVICES"] == ""
    assert Devices(("4", "6", "7")).first(2) == Devices(("4", "6"))
    assert Devices(processes=8).first(4) == Devices(processes=4)


@pytest.fixture
def driver(tmp_path, monkeypatch):
    """A stand-in for the driver's tool: two GPUs of 80 GiB and one of 24."""
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho '0, GPU-a, 81920'\necho '1, GPU-b, 81920'\necho '2, GPU-c, 24576'\n")
    tool.chmod(tool.stat().st_mode | stat.S_IEXEC)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    _driver_sizes.cache_clear()
    yield monkeypatch
    _driver_sizes.cache_clear()


def test_the_driver_says_how_much_memory_a_gpu_has_by_its_number_or_uuid(driver):
    large, small = 80 * 2**30 / 1e9, 24 * 2**30 / 1e9
    assert memory_gb(["2", "0"]) == pytest.approx((small, large))
    assert memory_gb(["GPU-c", "MIG-1234"]) == pytest.approx((small, math.inf))
    assert memory_gb([]) == ()


def test_without_the_drivers_tool_the_gpus_are_there_and_their_memory_is_not_known(driver, tmp_path):
    driver.setenv("PATH", str(tmp_path / "empty"))
    assert memory_gb(["0", "1"]) == (math.inf, math.inf)
