"""What costs hours shows its price and is asked about; mini is the default on every machine."""

import json
import sys

import pytest
import typer

from atrl_bench.cli import start
from atrl_bench.engines import devices
from atrl_bench.experiments import memory_check, plan
from atrl_bench.experiments.cost import Needs
from atrl_bench.experiments.memory_check import Capacity
from atrl_bench.experiments.plan import plan_table
from atrl_bench.experiments.price import Cost, Price, price_of
from atrl_bench.experiments.run_dir import RunDir
from atrl_bench.profiles import load_profile

LARGE = Capacity((80.0,) * 8, host_gb=1000, disk_gb=9000)
TRAIN = ("train", "grpo", "--profile", "paper")


@pytest.fixture(autouse=True)
def _with_eight_gpus(monkeypatch):
    monkeypatch.setattr(memory_check, "this_machine", lambda *_: LARGE)


@pytest.fixture
def started(monkeypatch):
    """The trainings that were started, by their recipes; none of them is carried out."""
    from atrl_bench.experiments import train_command

    recipes = []

    def train_recipe(recipe, *_, **__):
        recipes.append(recipe)
        raise typer.Exit(0)

    monkeypatch.setattr(train_command, "train_recipe", train_recipe)
    return recipes


def test_without_a_terminal_a_run_of_hours_shows_its_price_and_says_what_to_type(atrl_bench, started):
    code, out, err = atrl_bench(*TRAIN)
    assert code == 2
    assert "GPU-hours" in out
    assert "model Qwen/Qwen2.5-VL-7B-Instruct" in out
    assert err.splitlines()[-1] == "Next: atrl-bench train grpo --profile paper --yes"
    assert started == []


def test_yes_starts_it_without_a_question_and_still_shows_the_price(atrl_bench, started):
    code, out, _ = atrl_bench(*TRAIN, "--yes")
    assert (code, started) == (0, ["grpo"])
    assert "Left to do: 1 training" in out


@pytest.mark.parametrize(("answer", "expected"), [(True, ["grpo"]), (False, [])])
def test_at_a_terminal_it_asks_and_does_what_it_is_told(atrl_bench, started, monkeypatch, answer, expected):
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setattr(start.typer, "confirm", lambda _: answer)
    code, out, _ = atrl_bench(*TRAIN)
    assert (code, started) == (0 if answer else 1, expected)
    assert ("Nothing was started." in out) is not answer


def test_of_several_processes_only_the_first_one_asks(atrl_bench, started, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    assert atrl_bench(*TRAIN)[0] == 0
    assert started == ["grpo"]


def test_programs_get_no_price_between_their_json(atrl_bench, started):
    code, out, err = atrl_bench(*TRAIN, "--json")
    assert (code, out) == (2, "")
    assert "--json --yes" in err


@pytest.mark.parametrize(
    "command",
    [
        ("run-table", "main_7b"),
        ("run-table", "all"),
        ("ablate", "hard_truncation"),
        ("evaluate", "Qwen/Qwen2.5-VL-7B-Instruct", "--tasks", "mathvista_testmini"),
    ],
)
def test_every_command_that_runs_asks_under_paper_and_shows_the_same_in_a_dry_run(atrl_bench, command):
    code, out, err = atrl_bench(*command, "--profile", "paper")
    assert code == 2, err
    assert err.splitlines()[-1].endswith("--profile paper --yes")
    _, dry, _ = atrl_bench(*command, "--profile", "paper", "--dry-run")
    assert dry.startswith(out.rstrip("\n"))


@pytest.mark.parametrize(("minutes", "asks"), [(59, False), (61, True)])
def test_a_mini_run_of_minutes_is_not_asked_about_but_one_of_hours_is(minutes, asks):
    needs = Needs({}, "", minutes=minutes)
    price = Price("grpo", RunDir.at(None, load_profile("mini")), (Cost("grpo", 0, "to do", "key", needs, needs),))
    assert price.must_ask(is_generated=True) is asks


def test_what_is_stored_is_not_priced_again(tmp_path, monkeypatch):
    monkeypatch.setattr(plan, "_digests", lambda *_: ("base", "data"))  # as of what was fetched
    run_dir = RunDir.at(tmp_path, load_profile("paper"))
    planned = plan_table("bias_correction", run_dir)
    before = price_of(planned)
    first = planned.jobs[1]
    with run_dir.open_store() as store:
        store.add_run(first.run_spec)
        store.finish_run(first.run_key, checkpoint="gone", digest="d", seconds=1.0, summary={})
    after = price_of(plan_table("bias_correction", RunDir.at(tmp_path, load_profile("paper"))))
    assert after.gpu_hours == pytest.approx(before.gpu_hours - before.trainings[0].needs.gpu_hours)
    assert after.left()["trainings"] == before.left()["trainings"] - 1
    assert after.trainings[0].state == "done"
    assert {cell.state for cell in after.cells} == {"to do"}


def test_the_price_has_disk_downloads_and_the_conditions_to_accept(tmp_path, atrl_bench):
    _, out, _ = atrl_bench("plan", "video", "--profile", "paper", "--json")
    left = json.loads(out)["left"]
    # Three trained 7B models in float32, and 32 bytes a parameter while one of them is trained.
    assert left["disk_gb"] == pytest.approx((3 * 4 + 24) * 8.29, abs=0.1)
    assert left["download_gb"] == 0  # no listing is kept here that says more
    assert left["conditions_to_accept"] == ["https://huggingface.co/datasets/lmms-lab/VideoMMMU"]


def test_what_was_measured_on_a_gpu_replaces_the_assumed_rates(tmp_path, atrl_bench):
    (tmp_path / "runs" / "paper").mkdir(parents=True)
    rates = {"hardware": "NVIDIA H100", "vllm_decoding": 4e13, "training_flops": 4e14}
    (tmp_path / "runs" / "paper" / "gpu_check.json").write_text(json.dumps({"rates": rates}))
    _, out, _ = atrl_bench("plan", "bias_correction", "--profile", "paper")
    assert "2 of 7 rates measured on NVIDIA H100, the others assumed" in " ".join(out.split())


def test_mini_is_the_default_where_there_are_gpus_too_and_one_line_says_what_paper_takes(atrl_bench, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)  # trainings of other tests set it
    monkeypatch.setattr(devices, "_num_gpus", lambda root: 8)
    code, out, _ = atrl_bench("plan", "bias_correction")
    assert code == 0
    _, paper, _ = atrl_bench("plan", "bias_correction", "--profile", "paper", "--json")
    hours = json.loads(paper)["left"]["gpu_hours"]
    assert out.splitlines()[0] == "Profile mini: a tiny model on generated benchmarks, on any machine."
    assert out.splitlines()[1] == f"8 GPUs here: --profile paper takes about {hours:.0f} GPU-hours."
    assert "under profile mini, in runs/mini" in out


def test_without_a_gpu_the_line_says_what_paper_is_for(atrl_bench, monkeypatch):
    monkeypatch.setattr(devices, "_num_gpus", lambda root: 0)
    _, out, _ = atrl_bench("plan", "bias_correction")
    assert out.splitlines()[1] == "The paper's own sizes, for GPUs: --profile paper"
