"""VSI-Bench, VideoMMMU and MMVU: their rows as published, and the faults that are known of their scoring."""

import numpy as np
import pytest

from atrl_bench.errors import MissingDataError
from atrl_bench.evaluation.data import load_rows
from atrl_bench.evaluation.hooks import MEDIA_ROOT, MEDIA_ROOT_VARIABLE
from atrl_bench.evaluation.tasks import find_task
from atrl_bench.grading.grade import grade
from atrl_bench.grading.scorers.numbers import mra, read_number
from atrl_bench.results.records import Gold, Problem

TASKS = ("vsi_bench", "video_mmmu_perception", "video_mmmu_comprehension", "video_mmmu_adaptation", "mmvu_val")


def task(name: str):
    return find_task(name).module


def points(response: str, gold: Gold) -> float:
    return grade(response, gold).points


# Every twin -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TASKS)
def test_a_prompt_speaks_of_the_video(name, mini_world) -> None:
    info = find_task(name)
    texts = [info.module.doc_to_text(row) for row in load_rows(info, mini_world)]
    assert not any("the image" in text for text in texts)
    assert any("the video" in text for text in texts)


# VSI-Bench --------------------------------------------------------------------------------------------------------

COUNT = {
    "id": 7,
    "dataset": "scannet",
    "scene_name": "scene0011_00",
    "question_type": "object_counting",
    "question": "How many chair(s) are in this room?",
    "ground_truth": "5",
    "options": None,
}
DISTANCE = COUNT | {
    "question_type": "object_rel_distance",
    "question": "Which of these is the closest to the door?",
    "ground_truth": "B",
    "options": ["A. table", "B. stool", "C. tv", "D. sofa"],
}


def test_vsi_bench_reads_a_row_as_published() -> None:
    vsi = task("vsi_bench")
    assert vsi.gold(COUNT) == Gold("5", kind="number", metric="mra")
    assert vsi.gold(DISTANCE) == Gold("B", ("table", "stool", "tv", "sofa"), kind="choice")
    assert vsi.question(DISTANCE).endswith("Choices:\n(A) table\n(B) stool\n(C) tv\n(D) sofa")
    assert vsi.media(COUNT) == ["scannet/scene0011_00.mp4"]
    assert vsi.group(COUNT) == vsi.group(DISTANCE) == "scannet/scene0011_00"  # one video, one cluster


@pytest.mark.parametrize(
    ("answer", "score"),
    [
        ("5", 1.0),
        ("5.25", 1.0),  # 5 % off: within 1 - 0.95
        ("4", 0.6),  # exactly 20 % off: 0.6 with the published arithmetic, where exact arithmetic gives 0.7
        ("6", 0.6),
        ("4.1", 0.7),  # 18 % off: within 0.5, 0.45, 0.4, 0.35, 0.3, 0.25 and 0.2
        ("2.5", 0.1),  # 50 % off: within the widest alone
        ("2.4", 0.0),
        ("0", 0.0),
        ("-5", 0.0),
        ("nan", 0.0),
        ("inf", 0.0),
        ("-inf", 0.0),
        ("1e400", 0.0),
        ("four", 0.6),
        ("five chairs", 1.0),
        ("5 m", 1.0),
        ("4 or 5", 0.0),  # several numbers are no answer
    ],
)
def test_a_number_earns_the_share_of_thresholds_that_it_reaches(answer, score) -> None:
    assert points(f"\\boxed{{{answer}}}", task("vsi_bench").gold(COUNT)) == pytest.approx(score)


def test_mra_is_the_published_sum_over_thresholds() -> None:
    for gold in (0.5, 3.0, 7.0, 20.0, 1200.0):
        for prediction in np.linspace(0.1, 2 * gold, 37):
            thresholds = np.linspace(0.5, 0.95, 10)
            expected = np.mean([abs(prediction - gold) / gold <= 1 - threshold for threshold in thresholds])
            assert mra(repr(float(prediction)), Gold(str(gold))).score == pytest.approx(expected)


def test_no_prediction_is_worth_anything_when_the_right_number_is_zero_but_zero() -> None:
    assert mra("0", Gold("0")).score == 1
    assert mra("1", Gold("0")).score == 0


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1,200", 1200.0),  # not 1
        ("sixteen", 16.0),  # not 6
        ("six", 6.0),
        ("Twenty-one", 21.0),
        ("seventy five", 75.0),
        ("about 4.5 meters", 4.5),
        ("3/4", 0.75),
        ("two or three", None),
        ("two hundred", None),
        ("a chair", None),
        ("someone", None),
        ("NaN", None),
        ("infinity", None),
        ("", None),
    ],
)
def test_the_one_number_of_an_answer_is_read_whole(text, number) -> None:
    assert read_number(text) == number


def test_of_two_numbers_in_a_sentence_the_final_answer_counts() -> None:
    assert points("The 2 chairs are 4.0 m apart.", Gold("4.0", kind="number", metric="mra")) == 1  # not the 2


def problem(number: int, question_type: str) -> Problem:
    return Problem(str(number), "scene", "", Gold(""), {"question_type": question_type})


def test_the_number_of_vsi_bench_is_the_mean_of_eight_categories_with_directions_merged_first() -> None:
    vsi = task("vsi_bench")
    kinds = ["object_counting"] * 2 + [f"object_rel_direction_{level}" for level in ("easy", "medium", "hard", "hard")]
    statistic = vsi.STATISTICS[vsi.HEADLINE]([problem(n, kind) for n, kind in enumerate(kinds)])
    scores, ones = np.array([0.6, 1.0, 1.0, 0.0, 1.0, 0.0]), np.ones(6)
    # Counting 0.8; directions 1, 0 and 0.5, so 0.5; the mean of 0.8 and 0.5. A mean over rows would be 0.6.
    assert statistic(scores, ones) == pytest.approx(0.65)
    # A row drawn twice weighs twice in its category: counting is then (0.6 + 2 * 1.0) / 3.
    assert statistic(scores, np.array([1, 2, 1, 1, 1, 1.0])) == pytest.approx((2.6 / 3 + 0.5) / 2)


def test_every_published_question_type_is_in_the_synthetic_benchmark_and_makes_eight_categories(mini_world) -> None:
    info = find_task("vsi_bench")
    types = {row["question_type"] for row in load_rows(info, mini_world)}
    assert len(types) == 10
    assert len({info.module.LEVELS.get(name, name) for name in types}) == 8


# VideoMMMU --------------------------------------------------------------------------------------------------------

LECTURE = {
    "id": "dev_Art_Theory_12",
    "question": "What is shown?",
    "options": [f"thing {n}" for n in range(14)],
    "answer": "N",
    "has_picture": False,
}
PROBLEM = LECTURE | {"question": "<image 1> Find it.", "question_type": "multiple-choice", "has_picture": True}


def test_options_go_up_to_n() -> None:
    mmmu = task("video_mmmu_perception")
    gold = mmmu.gold(LECTURE)
    assert gold == Gold("N", tuple(LECTURE["options"]), kind="choice")
    assert "(N) thing 13" in mmmu.question(LECTURE)
    for response in ("\\boxed{N}", "The answer is N.", "**N**", "(N)", "Answer: N\n\nBecause option A is wrong."):
        assert points(response, gold) == 1
    assert points("\\boxed{A}", gold) == 0


def test_options_that_carry_their_letters_get_them_once() -> None:
    lettered = LECTURE | {"options": ["A. red", "B. blue"], "answer": "B"}
    assert task("video_mmmu_perception").gold(lettered) == Gold("B", ("red", "blue"), kind="choice")
    # Only where all of them do: this one is a name.
    named = LECTURE | {"options": ["A. Einstein", "Bohr"], "answer": "B"}
    assert task("video_mmmu_perception").gold(named).choices == ("A. Einstein", "Bohr")


@pytest.mark.parametrize(
    "row", [LECTURE, PROBLEM, PROBLEM | {"question_type": None}], ids=["no column", "multiple choice", "no type"]
)
def test_a_letter_is_wanted_whether_or_not_the_row_has_a_question_type(row) -> None:
    assert task("video_mmmu_adaptation").gold(row).kind == "choice"


def test_a_malformed_list_of_accepted_answers_is_read() -> None:
    row = PROBLEM | {"options": [], "question_type": "open", "answer": "['24/7', '3.429', '3.43]"}
    gold = task("video_mmmu_adaptation").gold(row)
    assert gold.references == ("24/7", "3.429", "3.43")


def test_a_lecture_lies_in_the_folder_of_its_discipline() -> None:
    mmmu = task("video_mmmu_perception")
    assert mmmu.media(LECTURE) == ["Art/dev_Art_Theory_12.mp4"]
    assert mmmu.media({"id": "validation_Accounting_3"}) == ["Business/validation_Accounting_3.mp4"]
    assert mmmu.media({"id": "new_Energy_and_Power_1"}) == ["Engineering/new_Energy_and_Power_1.mp4"]
    assert len(mmmu.DISCIPLINE_OF) == 30


def test_the_picture_of_an_adaptation_problem_comes_after_its_video(mini_world) -> None:
    info = find_task("video_mmmu_adaptation")
    row = load_rows(info, mini_world, limit=1)[0]
    video, picture = info.code.images(row)
    assert video.endswith(".mp4")
    assert picture.mode == "RGB"
    assert info.module.question(row).startswith(info.module.LEARN_AND_APPLY)
    assert "<image" not in info.module.question(row)


# MMVU -------------------------------------------------------------------------------------------------------------

CHOICE = {
    "id": "validation_0",
    "video": "https://huggingface.co/datasets/yale-nlp/MMVU/resolve/main/videos/Art/0.mp4",
    "question_type": "multiple-choice",
    "question": "Which instrument is it?",
    "choices": {"A": "Violin", "B": "Cello", "C": "Flute", "D": "Oboe", "E": "Harp"},
    "answer": "C",
}
OPEN = CHOICE | {
    "question_type": "open-ended",
    "choices": {"A": "", "B": "", "C": "", "D": "", "E": ""},
    "answer": "six",
}


def test_mmvu_reads_a_row_as_published() -> None:
    mmvu = task("mmvu_val")
    assert mmvu.gold(CHOICE) == Gold("C", ("Violin", "Cello", "Flute", "Oboe", "Harp"), kind="choice")
    assert "(E) Harp" in mmvu.question(CHOICE)
    assert mmvu.question(OPEN) == "Which instrument is it?"
    assert mmvu.media(CHOICE) == ["videos/Art/0.mp4"]
    assert mmvu.media(CHOICE | {"video_path": "videos/Art/0.mp4"}) == ["videos/Art/0.mp4"]
    assert mmvu.gold(OPEN | {"choices": None}) == mmvu.gold(OPEN)


@pytest.mark.parametrize(
    "response", ["", " ", "\\boxed{}", "\\boxed{sixteen}", "sixteen", "\\boxed{s}", "\\boxed{a six}?"]
)
def test_neither_an_empty_answer_nor_a_part_of_a_word_is_right(response) -> None:
    expected = 1 if response == "\\boxed{a six}?" else 0  # an article alone changes nothing
    assert points(response, task("mmvu_val").gold(OPEN)) == expected


def test_the_multiple_choice_rows_that_video_r1_reports_are_a_statistic_of_their_own() -> None:
    mmvu = task("mmvu_val")
    kinds = ["multiple-choice", "open-ended", "multiple-choice", "multiple-choice"]
    statistic = mmvu.STATISTICS["multiple_choice"]([problem(n, kind) for n, kind in enumerate(kinds)])
    assert statistic(np.array([1.0, 0.0, 1.0, 0.0]), np.ones(4)) == pytest.approx(2 / 3)
    assert mmvu.BREAKDOWN in mmvu.KEPT


# With lmms-eval alone ---------------------------------------------------------------------------------------------


def test_rows_that_nobody_gave_a_folder_name_the_variable_that_does(monkeypatch, tmp_path) -> None:
    monkeypatch.delenv(MEDIA_ROOT_VARIABLE, raising=False)
    with pytest.raises(MissingDataError, match=MEDIA_ROOT_VARIABLE):
        task("mmvu_val").images(CHOICE)
    monkeypatch.setenv(MEDIA_ROOT_VARIABLE, str(tmp_path))
    assert task("mmvu_val").images(CHOICE) == [str(tmp_path / "videos" / "Art" / "0.mp4")]
    elsewhere = CHOICE | {MEDIA_ROOT: "/elsewhere"}
    assert task("mmvu_val").images(elsewhere) == ["/elsewhere/videos/Art/0.mp4"]
