"""The same model, task, prompts and decoding, by our loop and by lmms-eval's evaluator with our model class."""

import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import fmean

import pytest
import yaml

from atrl_bench.data.dataset import table_files
from atrl_bench.evaluation.cell import evaluate
from atrl_bench.evaluation.cell_spec import EvaluationOptions
from atrl_bench.evaluation.lmms_model import RepeatSampler
from atrl_bench.evaluation.tasks import find_task
from atrl_bench.profiles import load_profile
from atrl_bench.results.store import Store

TASKS = ("mathvision_testmini", "mmmu_val")  # one image before the text; images that stand among the words
SMOKE = load_profile("smoke")
SIZES = SMOKE.evaluation.model_copy(update={"batch_size": 5, "temperature": 1.0, "max_new_tokens": 32})
NUM_PROBLEMS, NUM_REPEATS, RUN_SEED = 8, 3, 3


@pytest.fixture(scope="module")
def of_lmms_eval(mini_world, tmp_path_factory) -> dict[str, list[dict]]:
    """What `lmms-eval --model atrl` logs of each task, a line a problem."""
    folder = tmp_path_factory.mktemp("tasks")
    for name in TASKS:
        task = find_task(name)
        data_files = {task.split: [str(path) for path in table_files(task, mini_world)]}
        mine = {"include": str(task.yaml_path), "task": task.lmms_eval_name, "repeats": NUM_REPEATS}
        mine |= {"dataset_path": "parquet", "dataset_kwargs": {"data_files": data_files}}
        mine["lmms_eval_specific_kwargs"] = {"default": {"run_seed": RUN_SEED}}
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(mine))
    # The entry point of pyproject.toml, also where the package runs from a checkout without having been installed.
    info = folder / "installed" / "atrl_bench_here-0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: atrl-bench-here\nVersion: 0\n")
    (info / "entry_points.txt").write_text("[lmms_eval.models]\natrl = atrl_bench.evaluation.lmms_manifest:manifest\n")
    path = os.pathsep.join(filter(None, [str(info.parent), os.environ.get("PYTHONPATH")]))
    sizes = f"min_pixels={SIZES.min_pixels},max_pixels={SIZES.max_pixels}"
    command = [sys.executable, "-m", "lmms_eval", "--model", "atrl", "--include_path", str(folder)]
    command += ["--model_args", f"pretrained=mini,run_seed={RUN_SEED},{sizes}", "--batch_size", "5"]
    command += ["--tasks", ",".join(find_task(name).lmms_eval_name for name in TASKS), "--limit", str(NUM_PROBLEMS)]
    command += ["--gen_kwargs", "temperature=1.0,do_sample=True,max_new_tokens=32"]
    command += ["--log_samples", "--output_path", str(folder / "out")]
    environment = os.environ | {"PYTHONPATH": path}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    logs = {name: list((folder / "out").rglob(f"*_samples_atrl_{name}.jsonl")) for name in TASKS}
    assert all(logs.values()), done.stdout[-1000:] + done.stderr[-3000:]
    return {name: [json.loads(line) for line in log.read_text().splitlines()] for name, (log,) in logs.items()}


@pytest.mark.parametrize("name", TASKS)
def test_both_give_the_same_answers_and_the_same_score(name, of_lmms_eval, mini_world, tmp_path: Path) -> None:
    profile = SMOKE.model_copy(update={"evaluation": SIZES})
    options = EvaluationOptions(repeats=NUM_REPEATS, limit=NUM_PROBLEMS, run_seed=RUN_SEED)
    with Store.open(tmp_path / "store.sqlite") as store:
        key = evaluate("mini", name, options, store=store, profile=profile, data_dir=mini_world)
        samples = store.samples(key)
    ours: dict[str, list[str]] = {}
    points: dict[str, list[float]] = {}
    for sample in samples:
        ours.setdefault(sample.problem.problem_id, []).append(sample.response.text.strip())
        points.setdefault(sample.problem.problem_id, []).append(sample.score)
    for number, problem_id in enumerate(ours):
        line = next(line for line in of_lmms_eval[name] if line["doc_id"] == number)
        # lmms-eval strips an answer, and says of a problem what its answers are worth.
        assert [text.strip() for text in line["filtered_resps"]] == ours[problem_id]
        assert line["mean_at_n"]["score"] == pytest.approx(fmean(points[problem_id]))
    assert len({text for texts in ours.values() for text in texts}) > NUM_PROBLEMS  # repeats differ at this temperature


def test_a_setting_that_the_model_does_not_have_is_an_error() -> None:
    with pytest.raises(TypeError, match="max_pixel"):
        RepeatSampler("mini", max_pixel=3136)
