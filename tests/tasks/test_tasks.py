"""The task files: they resolve, they describe the real rows and the twins, and each grades its own gold as correct."""

import dataclasses
import json
from pathlib import Path

import needs
import pytest
import yaml

from atrl_bench.errors import UnknownNameError
from atrl_bench.evaluation import tasks
from atrl_bench.evaluation.data import load_rows, to_problem
from atrl_bench.evaluation.hooks import choice_gold, repair_latex
from atrl_bench.evaluation.tasks import expand, find_task, list_suites, list_tasks
from atrl_bench.grading.grade import GradingPool, grade
from atrl_bench.models.templates import LETTERS
from atrl_bench.results.records import Gold

BENCHMARKS = {
    "GeoQA", "MathVerse", "MathVision", "MathVista", "WeMath", "MMMU", "MMMU-Pro", "EMMA", "MEGA-Bench", "ChartQAPro",
    "ChartMimic", "TextVQA", "InfoVQA", "VSI-Bench", "VideoMMMU", "MMVU",
}  # fmt: skip
NAMES = [info.name for info in list_tasks()]


def another(gold: Gold) -> Gold:
    """A gold answer that the given one does not equal."""
    if gold.kind == "choice":
        answer = LETTERS[(LETTERS.index(gold.answer) + 1) % max(2, len(gold.choices) or 5)]
    else:
        answer = "[-77, -78]" if gold.kind == "list" else "-7717"
    return dataclasses.replace(gold, answer=answer, references=(answer,) * len(gold.references))


def assert_grades_its_own_gold(problems) -> None:
    for problem in problems:
        gold = problem.gold
        response = f"Some steps first. The answer is \\boxed{{{gold.answer}}}."
        assert grade(response, gold).state == "correct", problem
        assert all(grade(f"\\boxed{{{answer}}}", gold).points for answer in gold.references), problem
        assert grade(response, another(gold)).points == 0, problem


def test_a_task_file_pins_a_revision_under_dataset_kwargs() -> None:
    path = tasks.find_task("infovqa_val").yaml_path
    config = tasks._read(path)
    assert tasks._task(path, config).revision is None
    pinned = tasks._task(path, {**config, "dataset_kwargs": {"revision": "v1"}})
    assert pinned.revision == "v1"


def test_every_benchmark_of_the_paper_is_there() -> None:
    titles = [info.title for info in list_tasks()]
    assert {name for name in BENCHMARKS if any(title.startswith(name) for title in titles)} == BENCHMARKS
    assert all(info.lmms_eval_name == f"atrl_{info.name}" for info in list_tasks())


def test_a_suite_stands_for_its_tasks_each_once() -> None:
    parts = ["mmmu_pro_standard", "mmmu_pro_vision"]
    assert [info.name for info in expand(["mmmu_pro", "geoqa_test", "mmmu_pro_vision"])] == [*parts, "geoqa_test"]
    assert all(set(suite.tasks) <= set(NAMES) for suite in list_suites())
    with pytest.raises(UnknownNameError, match="mmmu_pro"):
        expand(["mmmu_pr"])


@pytest.mark.parametrize("name", NAMES)
def test_every_function_that_a_task_file_names_exists_and_no_default_of_lmms_eval_damages_a_response(name) -> None:
    from lmms_eval.utils import load_yaml_config

    config = load_yaml_config(str(find_task(name).yaml_path), mode="full")
    hooks = ("process_docs", "doc_to_text", "doc_to_visual", "doc_to_target", "process_results")
    assert all(callable(config[hook]) for hook in hooks)
    assert all(callable(metric["aggregation"]) for metric in config["metric_list"])
    assert config["generation_kwargs"]["until"] == []  # otherwise lmms-eval stops at the first blank line
    assert config["filter_list"] == [{"name": "all_repeats", "filter": []}]  # otherwise only the first repeat counts


@pytest.mark.parametrize("name", NAMES)
def test_a_synthetic_benchmark_grades_its_own_gold_and_names_every_row_once(name, problems_of, mini_world) -> None:
    problems = problems_of(name, mini_world)
    assert len({problem.problem_id for problem in problems}) == len(problems) > 0
    if not hasattr(find_task(name).module, "gold_response"):  # those have tests of their own
        assert_grades_its_own_gold(problems)


@pytest.mark.parametrize("name", NAMES)
def test_a_synthetic_benchmark_s_media_open(name, mini_world) -> None:
    info = find_task(name)
    for row in load_rows(info, mini_world, limit=5):
        for shown in info.code.images(row):
            is_film = isinstance(shown, str)
            assert Path(shown).read_bytes()[4:8] == b"ftyp" if is_film else shown.mode == "RGB"


@needs.data
@pytest.mark.parametrize(
    ("name", "num_rows", "num_groups"), [("mathvision_testmini", 304, 304), ("wemath_testmini", 150, 45)]
)
def test_real_rows_grade_their_own_gold(name, num_rows, num_groups, problems_of) -> None:
    problems = problems_of(name, needs.DATA)
    assert len({problem.problem_id for problem in problems}) == len(problems) == num_rows
    assert len({problem.group for problem in problems}) == num_groups
    assert_grades_its_own_gold(problems)


@needs.data
@pytest.mark.parametrize("name", ["mathvision_testmini", "wemath_testmini"])
def test_the_text_of_a_real_option_is_as_good_as_its_letter(name, problems_of) -> None:
    golds = [problem.gold for problem in problems_of(name, needs.DATA) if problem.gold.choices]
    plain = [gold for gold in golds if not set(gold.choices) & set(LETTERS)]  # else the letter is read
    with GradingPool() as pool:
        for shift, state in ((0, "correct"), (1, "wrong")):
            texts = [gold.choices[(LETTERS.index(gold.answer) + shift) % len(gold.choices)] for gold in plain]
            verdicts = pool.grade_many([(f"\\boxed{{{text}}}", gold) for text, gold in zip(texts, plain, strict=True)])
            assert [(gold, v) for gold, v in zip(plain, verdicts, strict=True) if v.state != state] == []


@needs.data
def test_the_real_geoqa_questions_grade_their_own_gold() -> None:
    info = find_task("geoqa_test")
    lines = (needs.DATA / "geoqa" / "test_prompts.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(lines) == 754
    assert_grades_its_own_gold(to_problem(info, json.loads(line) | {"row_number": n}) for n, line in enumerate(lines))


@needs.data
def test_all_real_wemath_options_are_told_apart(problems_of) -> None:
    for problem in problems_of("wemath_testmini", needs.DATA):
        assert 4 <= len(problem.gold.choices) <= 5
        assert problem.gold.choices[-1] == "No correct answer"
        assert problem.question.count("\n(") == len(problem.gold.choices)


def test_mathverse_letters_its_options_and_falls_back_where_the_question_is_in_the_image() -> None:
    task = find_task("mathverse_testmini").module
    row = {"problem_index": "1", "problem_version": "Text Dominant", "question_type": "multi-choice", "answer": "(D)"}
    row["question"] = "Then the size of angle CED is ()\nChoices:\nA:40°\nB:60°\nC:120°\nD:140°"
    assert task.question(row) == "Then the size of angle CED is ()\nChoices:\n(A) 40°\n(B) 60°\n(C) 120°\n(D) 140°"
    assert task.gold(row) == Gold("D", ("40°", "60°", "120°", "140°"), kind="choice")
    vision_only = row | {"problem_version": "Vision Only", "question": "", "question_for_eval": row["question"]}
    assert "question shown in the image" in task.doc_to_text(vision_only)
    assert task.gold(vision_only) == task.gold(row)
    assert task.group(vision_only) == task.group(row)
    assert task.problem_id(vision_only) != task.problem_id(row)


def test_mathvista_reads_precision_as_a_whole_number_and_an_option_s_text_as_its_letter() -> None:
    task = find_task("mathvista_testmini").module
    row = {"pid": "1", "question": "How far?", "unit": None, "choices": None, "answer": "1.2", "precision": 1.0}
    row |= {"question_type": "free_form", "answer_type": "float"}
    gold = task.gold(row)
    assert gold.precision == 1
    assert grade("\\boxed{1.23}", gold).state == "correct"
    assert grade("\\boxed{1.3}", gold).state == "wrong"
    row |= {"question_type": "multi_choice", "choices": ["145°", "35°"], "answer": "35°", "precision": None}
    assert task.gold(row) == Gold("B", ("145°", "35°"), kind="choice")


def test_a_precision_of_the_task_is_that_of_each_gold_without_its_own() -> None:
    task = dataclasses.replace(find_task("mathvista_testmini"), precision="gold")
    row = {"pid": "1", "question": "How far?", "unit": None, "choices": None, "answer": "1.2", "precision": None}
    row |= {"question_type": "free_form", "answer_type": "float"}
    assert to_problem(task, row).gold.precision == "gold"
    assert to_problem(task, row | {"precision": 1.0}).gold.precision == 1
    assert to_problem(find_task("mathvista_testmini"), row).gold.precision is None


@pytest.mark.parametrize(
    ("damaged", "repaired"),
    [
        ("\x0crac{36}{13}", "\\frac{36}{13}"),
        ("$\\boxed{4}$", "4"),
        ("69{degrees}", "69^\\circ"),
        ("118掳T", "118°T"),
        ("\\frac{1}{2}", "\\frac{1}{2}"),
        ("(3,-4)", "(3,-4)"),
    ],
)
def test_damaged_gold_is_repaired_and_sound_gold_left_alone(damaged, repaired) -> None:
    assert repair_latex(damaged) == repaired


@pytest.mark.parametrize(
    ("answer", "options", "gold"),
    [
        ("B", ["x", "y"], Gold("B", ("x", "y"), kind="choice")),
        ("(B)", ["x", "y"], Gold("B", ("x", "y"), kind="choice")),
        ("y", ["x", "y"], Gold("B", ("x", "y"), kind="choice")),
        ("C", [], Gold("C", kind="choice")),
        ("False", ["x", "y"], Gold("False", ("x", "y"))),
        ("C\nD", ["x", "y"], Gold("C\nD", ("x", "y"))),
    ],
)
def test_a_choice_is_a_letter_however_the_row_names_it(answer, options, gold) -> None:
    assert choice_gold(answer, options) == gold


@pytest.mark.slow
def test_lmms_eval_alone_gives_the_same_answers(mini_world, tmp_path) -> None:
    """Its own Qwen2.5-VL class, its own loop, our task file on local Parquet as `_protocol.yaml` explains."""
    from lmms_eval import evaluator
    from lmms_eval.models.chat.qwen2_5_vl import Qwen2_5_VL
    from lmms_eval.tasks import TaskManager

    from atrl_bench.evaluation.cell import evaluate
    from atrl_bench.evaluation.cell_spec import EvaluationOptions
    from atrl_bench.mini import BASE
    from atrl_bench.models import local
    from atrl_bench.profiles import load_profile
    from atrl_bench.results.store import Store

    info = find_task("mathvision_testmini")
    mine = {
        "include": str(info.yaml_path),
        "task": "my_mathvision",
        "dataset_path": "parquet",
        "dataset_kwargs": {"data_files": {"testmini": str(mini_world / "mathvision" / "testmini*.parquet")}},
    }
    (tmp_path / "my_mathvision.yaml").write_text(yaml.safe_dump(mine))
    smoke = load_profile("smoke")
    pixels = {"min_pixels": smoke.evaluation.min_pixels, "max_pixels": smoke.evaluation.max_pixels}
    stock = Qwen2_5_VL(str(BASE), device="cpu", device_map="cpu", batch_size=4, system_prompt=None, **pixels)
    stock._model = local.load(local.find_model(BASE), **pixels, dtype="float32").model  # its own is bfloat16
    results = evaluator.simple_evaluate(
        model=stock,
        tasks=["my_mathvision"],
        task_manager=TaskManager(include_path=str(tmp_path), include_defaults=False),
        gen_kwargs="temperature=0,do_sample=False,max_new_tokens=48",
        limit=8,
        bootstrap_iters=0,
        log_samples=True,
    )
    theirs = {str(sample["doc"]["id"]): sample["resps"][0][0] for sample in results["samples"]["my_mathvision"]}

    greedy = smoke.model_copy(update={"evaluation": smoke.evaluation.model_copy(update={"temperature": 0.0})})
    with Store.open(tmp_path / "store.sqlite") as store:
        options = EvaluationOptions(repeats=1, limit=8)
        key = evaluate(BASE, info.name, options, store=store, profile=greedy, data_dir=mini_world)
        samples = store.samples(key)
    assert {sample.problem.problem_id: sample.response.text for sample in samples} == theirs
    mean = sum(sample.score for sample in samples) / len(samples)
    assert results["results"]["my_mathvision"]["mean_at_n,all_repeats"] == mean
