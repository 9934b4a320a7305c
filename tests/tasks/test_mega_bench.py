"""MEGA-Bench: the gold of every row gets a full point and a corrupted one none; media, prompt and macro mean."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from atrl_bench.evaluation.data import load_rows, to_problem
from atrl_bench.evaluation.hooks import MEDIA_ROOT
from atrl_bench.evaluation.tasks import find_task
from atrl_bench.grading.grade import GradingPool
from atrl_bench.grading.scorers.mega.literals import read_literal
from atrl_bench.grading.scorers.mega.scoring import BY_CONTEXT, BY_REFERENCE
from atrl_bench.mini.benchmarks.mega import FORMAT, SYNTHETIC_BENCHMARKS
from atrl_bench.results.records import Gold, Problem

NAMES = {"mega_bench_core": SYNTHETIC_BENCHMARKS[0], "mega_bench_core_si": SYNTHETIC_BENCHMARKS[1]}
WRONG = "#####"


@pytest.fixture(scope="module")
def rows() -> list[dict]:
    return SYNTHETIC_BENCHMARKS[0].rows(150, np.random.default_rng(0))


@pytest.fixture(scope="module")
def task():
    return find_task("mega_bench_core").module


def corrupted(row: dict) -> dict:
    return row | {"answer": str(dict.fromkeys(read_literal(row["answer"]), WRONG))}


def test_the_gold_of_every_row_gets_a_full_point_and_a_corrupted_one_none(rows, task) -> None:
    with GradingPool() as pool:
        right = pool.grade_many([(task.gold_response(row), task.gold(row)) for row in rows])
        wrong = pool.grade_many([(task.gold_response(corrupted(row)), task.gold(row)) for row in rows])
    assert [row["task_name"] for row, verdict in zip(rows, right, strict=True) if verdict.state != "correct"] == []
    assert [row["task_name"] for row, verdict in zip(rows, wrong, strict=True) if verdict.points] == []
    assert {verdict.state for verdict in wrong} == {"wrong"}


def test_the_answer_in_a_box_counts_as_well_as_the_task_s_own_form(rows, task) -> None:
    plain = [
        row
        for row in rows
        if "general_single_numerical_match" in row["metric_info"] and "'json'" not in row["metric_info"]
    ]
    answers = [f"I add. \\boxed{{{read_literal(row['answer'])['answer']}}}" for row in plain]
    with GradingPool() as pool:
        verdicts = pool.grade_many([(answer, task.gold(row)) for answer, row in zip(answers, plain, strict=True)])
    assert len(plain) > 10
    assert {verdict.state for verdict in verdicts} == {"correct"}


def test_the_synthetic_benchmark_has_answers_of_every_form_and_metrics_with_and_without_a_context(rows) -> None:
    rules = [read_literal(row["metric_info"]) for row in rows]
    named = {metric for rule in rules for metric in rule["field_score_function"].values()}
    assert named & BY_CONTEXT.keys() == BY_CONTEXT.keys() - {"program_judge"}
    assert named <= {*BY_CONTEXT, *BY_REFERENCE}
    assert {rule["response_parse_function"] for rule in rules} == set(FORMAT)
    assert {rule["aggregation"]["function"] for rule in rules} == {"mean", "min"}


@pytest.mark.parametrize("name", NAMES)
def test_the_pictures_stand_where_the_text_has_their_marks(name, mini_world) -> None:
    info = find_task(name)
    for row in (row for row in load_rows(info, mini_world, limit=8) if "<video>" not in row["query_text"]):
        [turn] = info.module.doc_to_messages(row)
        kinds = [part["type"] for part in turn["content"]]
        shown = [part["url"] for part in turn["content"] if part["type"] == "image"]
        text = "".join(part.get("text", "<image>") for part in turn["content"])
        assert len(shown) == kinds.count("image") == info.module.question(row).count("<image>") == text.count("<image>")
        assert all(picture.mode == "RGB" for picture in shown)
        assert [picture.size for picture in info.module.images(row)] == [picture.size for picture in shown]
        assert text.replace("\n", "") == info.module.doc_to_text(row).replace("\n", "")


def test_a_video_of_the_whole_set_can_be_decoded(mini_world) -> None:
    from atrl_bench.models.video import read_video

    info = find_task("mega_bench_core")
    row = next(row for row in load_rows(info, mini_world) if "<video>" in row["query_text"])
    [part] = [part for part in info.module.doc_to_messages(row)[0]["content"] if part["type"] == "video"]
    assert len(read_video(part["url"], 8).indices) == 8


def test_the_single_image_subset_has_one_image_and_lies_beside_the_whole(mini_world) -> None:
    whole, single = (load_rows(find_task(name), mini_world) for name in NAMES)
    assert all("<video>" not in row["query_text"] for row in single)
    assert {len(find_task("mega_bench_core").module.media(row)) for row in single} == {1}
    assert {len(find_task("mega_bench_core").module.media(row)) for row in whole} == {1, 2}


ROW = {
    "id": "7",
    "task_name": "two_pictures",
    "task_description": "Compare.",
    "global_media": "[]",
    "example_text": "",
    "example_media": "",
    "query_text": "First <image> then <video>.",
    "query_media": "['./data/a.png', 'data/b.MP4']",
    "answer": "{'answer': '5'}",
    "metric_info": "{'field_score_function': {'answer': 'exact_str_match'}, 'aggregation': {'function': 'mean', "
    "'field_weights': {'answer': 1}}, 'response_parse_function': 'answer_string'}",
    "eval_context": "{}",
}


def content_of(task, row: dict, folder: Path) -> list[dict]:
    (folder / "data").mkdir(exist_ok=True)
    Image.new("RGB", (4, 4)).save(folder / "data" / "a.png")
    [turn] = task.doc_to_messages(row | {MEDIA_ROOT: str(folder)})
    return turn["content"]


def test_a_video_is_given_by_its_path_and_a_picture_opened(task, tmp_path) -> None:
    content = content_of(task, ROW, tmp_path)
    assert [part["type"] for part in content] == ["text", "image", "text", "video", "text"]
    assert content[0]["text"].endswith("First ")
    assert content[2]["text"] == " then "
    assert content[3]["url"] == str(tmp_path / "data" / "b.MP4")


def test_media_without_a_mark_come_first_and_a_mark_without_media_shows_nothing(task, tmp_path) -> None:
    unmarked = content_of(task, ROW | {"query_text": "Which <image>?"}, tmp_path)
    assert [part["type"] for part in unmarked] == ["image", "text", "video", "text"]
    too_many = content_of(task, ROW | {"query_media": "['data/a.png']"}, tmp_path)
    assert [part["type"] for part in too_many] == ["text", "image", "text", "text"]


@pytest.mark.parametrize(
    ("media", "error"),
    [
        ("['data/missing.png']", OSError),
        ("['../../etc/passwd']", ValueError),
        ("__import__('os').listdir()", ValueError),
        ("[", ValueError),
    ],
)
def test_bad_media_raise_what_skips_and_counts_the_row(media, error, task, tmp_path) -> None:
    with pytest.raises(error):
        content_of(task, ROW | {"query_media": media}, tmp_path)


def test_the_headline_is_the_mean_over_tasks_and_micro_the_mean_over_rows(task) -> None:
    problems = [Problem(str(n), name, "", Gold(""), {"task_name": name}) for n, name in enumerate("aaab")]
    scores, weights = np.array([1.0, 1.0, 1.0, 0.0]), np.ones(4)
    numbers = {name: make(problems)(scores, weights) for name, make in task.STATISTICS.items()}
    assert numbers == {"macro": 0.5, "micro": 0.75}
    assert task.HEADLINE == "macro"


def test_a_stored_problem_keeps_what_its_score_depends_on(task) -> None:

    problem = to_problem(find_task("mega_bench_core"), ROW)
    assert problem.group == problem.meta["task_name"] == "two_pictures"
    assert problem.gold == task.gold(ROW)
    with GradingPool() as pool:
        [verdict] = pool.grade_many([("Answer: 5", problem.gold)])
    assert verdict.state == "correct"
