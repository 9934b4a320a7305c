"""The same model, task, prompts and decoding, by our loop and by lmms-eval's evaluator with our model class."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from atrl_bench.evaluation.cell import evaluate
from atrl_bench.evaluation.cell_spec import EvaluationOptions
from atrl_bench.evaluation.source import parquet_files
from atrl_bench.evaluation.tasks import find_task
from atrl_bench.profiles import load_profile
from atrl_bench.results.store import Store

TASKS = ("mathvision_testmini", "mmmu_val")  # one image before the text; images that stand among the words
SMOKE = load_profile("smoke")
SIZES = SMOKE.evaluation.model_copy(update={"batch_size": 5, "temperature": 1.0, "max_new_tokens": 32})
NUM_PROBLEMS, NUM_REPEATS, RUN_SEED = 8, 3, 3

# In a process of its own: lmms-eval seeds the process that it runs in, and prints.
PROGRAM = f"""
import json, sys
from lmms_eval import evaluator
from lmms_eval.tasks import TaskManager
from atrl_bench.evaluation.lmms_model import RepeatSampler
from atrl_bench.evaluation.tasks import find_task

found = {{}}
for name in {TASKS}:
    problem_id = find_task(name).code.problem_id
    model = RepeatSampler("mini", 5, min_pixels={SIZES.min_pixels}, max_pixels={SIZES.max_pixels}, run_seed={RUN_SEED},
                          problem_id=problem_id)
    results = evaluator.simple_evaluate(
        model=model, tasks=["my_" + name], task_manager=TaskManager(include_path=sys.argv[1], include_defaults=False),
        gen_kwargs="temperature=1.0,do_sample=True,max_new_tokens=32", limit={NUM_PROBLEMS}, bootstrap_iters=0)
    answers = {{problem_id(sample["doc"]): sample["resps"] for sample in results["samples"]["my_" + name]}}
    found[name] = [results["results"]["my_" + name]["mean_at_n,all_repeats"], answers]
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def of_lmms_eval(mini_world, tmp_path_factory) -> dict:
    folder = tmp_path_factory.mktemp("tasks")
    for name in TASKS:
        task = find_task(name)
        mine = {
            "include": str(task.yaml_path),
            "task": f"my_{name}",
            "dataset_path": "parquet",
            "dataset_kwargs": {"data_files": {task.split: [str(path) for path in parquet_files(task, mini_world)]}},
            "repeats": NUM_REPEATS,
            "lmms_eval_specific_kwargs": {"default": {"run_seed": RUN_SEED}},
        }
        (folder / f"my_{name}.yaml").write_text(yaml.safe_dump(mine))
    command = [sys.executable, "-c", PROGRAM, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("name", TASKS)
def test_both_give_the_same_answers_and_the_same_score(name, of_lmms_eval, mini_world, tmp_path: Path) -> None:
    profile = SMOKE.model_copy(update={"evaluation": SIZES})
    options = EvaluationOptions(repeats=NUM_REPEATS, limit=NUM_PROBLEMS, run_seed=RUN_SEED)
    with Store.open(tmp_path / "store.sqlite") as store:
        key = evaluate("mini", name, options, store=store, profile=profile, data_dir=mini_world)
        samples = store.samples(key)
    mean, answers = of_lmms_eval[name]
    ours: dict[str, list[str]] = {}
    for sample in samples:
        ours.setdefault(sample.problem.problem_id, []).append(sample.response.text)
    # lmms-eval strips an answer and keeps its repeats in a list of one list.
    assert {problem: [text.strip() for text in texts] for problem, texts in ours.items()} == {
        problem: [text.strip() for text in repeats[0]] for problem, repeats in answers.items()
    }
    assert len({text for texts in ours.values() for text in texts}) > NUM_PROBLEMS  # repeats differ at this temperature
    assert mean == sum(sample.score for sample in samples) / len(samples)
