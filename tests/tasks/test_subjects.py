"""MMMU, MMMU-Pro and EMMA: lists in strings, images inside the text, and the traps that published scorers fell into."""

from typing import Any

import pytest
from fake_backend import picture
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from atrl_bench.evaluation.data import load_rows, to_problem
from atrl_bench.evaluation.hooks import interleaved, numbered_images, open_gold, read_list
from atrl_bench.evaluation.tasks import expand, find_task, list_suites
from atrl_bench.grading.grade import grade
from atrl_bench.results.records import Gold


def cell(shade: int) -> dict[str, Any]:
    return {"bytes": picture((shade, shade, shade)), "path": None}


def mmmu_row(**changes: Any) -> dict[str, Any]:
    row: dict[str, Any] = {"id": "validation_Art_Theory_3", "question": "Which one?", "options": "['x', 'y', 'z']"}
    row |= {"answer": "B", "question_type": "multiple-choice", "subject": "Art_Theory"}
    return row | {f"image_{n}": None for n in range(1, 8)} | {"image_1": cell(10)} | changes


def emma_row(**changes: Any) -> dict[str, Any]:
    row: dict[str, Any] = {"pid": "1", "question": "<image_1> Which?", "options": ["x", "y"], "answer": "B"}
    row |= {"type": "Multiple Choice", "subject": "Math", "context": None, "image_1": cell(10)}
    return row | {f"image_{n}": None for n in range(2, 6)} | changes


def shown(messages: list[dict[str, Any]]) -> list[Any]:
    """The turn as texts and, for images, their shade."""
    [turn] = messages
    return [part["text"] if part["type"] == "text" else part["url"].getpixel((0, 0))[0] for part in turn["content"]]


# Lists in strings -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "items"),
    [
        ("['$6', '$7', '$8', '$9']", ["$6", "$7", "$8", "$9"]),
        ("""["the artist's hand", 'a "found" object']""", ["the artist's hand", 'a "found" object']),
        (r"['$\\frac{1}{2}$', 'a\nb', 'caf\xe9']", [r"$\frac{1}{2}$", "a\nb", "café"]),
        (r"['\frac{1}{2}', '\alpha']", [r"\frac{1}{2}", r"\alpha"]),  # Python would read a form feed and a bell
        ("['a, b', 'c]', '[d']", ["a, b", "c]", "[d"]),
        ("['24/7', '3.429', '3.43]", ["24/7", "3.429", "3.43"]),  # VideoMMMU has such a row
        ("[1, 2.5, 'x']", ["1", "2.5", "x"]),
        ("['', 'x']", ["", "x"]),
        ("[]", []),
    ],
)
def test_a_list_in_a_string_is_read_item_by_item(text: str, items: list[str]) -> None:
    assert read_list(text) == items


@pytest.mark.parametrize("text", ["", "B", "['a'", "[['a'], 'b']", "['a' 'b']", "{'a': 1}", "[print('x')]"])
def test_what_is_no_list_of_strings_is_an_error_and_never_run(text: str) -> None:
    with pytest.raises(ValueError, match="not a list"):
        read_list(text)


@given(st.lists(st.text(max_size=12), max_size=14))
def test_every_list_of_strings_that_python_writes_is_read_back(items: list[str]) -> None:
    assert read_list(str(items)) == items


# Images inside the text -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("See <image 1> and <image 2>.", ["See ", 10, " and ", 20, "."]),
        ("<image_2><image_1> differ", [20, 10, " differ"]),
        ("<image 1> is <image 1>, not <image 2>", [10, " is ", 10, ", not ", 20]),
        ("Only <image 2> is named", [10, "Only ", 20, " is named"]),
        ("Neither is named", [10, 20, "Neither is named"]),
        ("<image 1> <image 3> <image 2>", [10, " <image 3> ", 20]),  # there is no third
    ],
)
def test_an_image_stands_where_the_text_names_it(text: str, parts: list[Any]) -> None:
    row = {"text": text, "image_1": cell(10), "image_2": cell(20), "image_3": None}
    assert shown(interleaved(lambda row, settings: row["text"], numbered_images)(row)) == parts


@given(st.lists(st.sampled_from(["<image 1>", "<image_2>", "<image 3>", "word", "<image>", "\n", " "]), max_size=12))
def test_interleaving_loses_no_text_and_no_image(pieces: list[str]) -> None:
    pictures = {1: Image.new("RGB", (1, 1)), 2: Image.new("RGB", (2, 2))}
    names = {(1, 1): "<image 1>", (2, 2): "<image_2>"}
    text = "".join(pieces)
    [turn] = interleaved(lambda row, settings: text, lambda row: pictures)({})
    kinds = [part["type"] for part in turn["content"]]
    never_named = [name for name in names.values() if name not in text]
    again = "".join(part["text"] if part["type"] == "text" else names[part["url"].size] for part in turn["content"])
    assert again == "".join(never_named) + text
    assert kinds.count("image") == sum(pieces.count(name) for name in names.values()) + len(never_named)


def test_options_may_be_images() -> None:
    task = find_task("mmmu_val").module
    row = mmmu_row(options="['<image 1>', '<image 2>']", image_2=cell(20))
    parts = shown(task.doc_to_messages(row))
    start = next(i for i, part in enumerate(parts) if str(part).endswith("(A) "))
    assert parts[start : start + 4][1:] == [10, "\n(B) ", 20]
    assert task.gold(row) == Gold("B", ("<image 1>", "<image 2>"), kind="choice")


# MMMU and MMMU-Pro ------------------------------------------------------------------------------------------------


def test_options_in_a_string_become_lettered_lines() -> None:
    task = find_task("mmmu_val").module
    assert task.question(mmmu_row()) == "Which one?\nChoices:\n(A) x\n(B) y\n(C) z"
    assert task.gold(mmmu_row()) == Gold("B", ("x", "y", "z"), kind="choice")


def test_the_subject_comes_from_the_id_where_there_is_no_column(mini_world) -> None:
    rows = load_rows(find_task("mmmu_val"), mini_world)
    assert {row["id"].split("_")[1] for row in rows} == set(rows["subject"])
    from datasets import Dataset

    task = find_task("mmmu_val").module
    prepared = task.process_docs(
        Dataset.from_dict({"id": ["validation_Art_Theory_3", "test_Basic_Medical_Science_12"]})
    )
    assert prepared["subject"] == ["Art_Theory", "Basic_Medical_Science"]


def test_the_pronoun_i_is_not_option_i() -> None:
    gold = Gold("I", tuple(f"text {n}" for n in range(10)), kind="choice")
    for response in (
        "I think the answer is B because CO2 and DNA differ",
        "I cannot determine the answer",
        "I give up",
    ):
        assert grade(response, gold).state != "correct"
    assert grade("I think it is option (I).", gold).state == "correct"
    assert grade("\\boxed{I}", gold).state == "correct"


def test_an_open_question_shows_no_options_and_a_single_answer_stays_one() -> None:
    task = find_task("mmmu_val").module
    row = mmmu_row(question_type="open", options="[]", answer="Trapdoor spider")
    assert task.question(row) == "Which one?"
    assert task.gold(row) == Gold("Trapdoor spider")
    assert grade("\\boxed{trapdoor spider}", task.gold(row)).state == "correct"
    assert grade("\\boxed{spider}", task.gold(row)).state == "wrong"
    assert open_gold("[1, 2]") == Gold("[1, 2]")  # an interval, not two answers


def test_the_vision_form_shows_nothing_but_the_image_and_grades_the_extracted_answer() -> None:
    task = find_task("mmmu_pro_vision").module
    row = {"id": "test_History_1", "image": picture(0), "options": "['x', 'y']", "answer": "B", "subject": "History"}
    assert "question shown in the image" in task.doc_to_text(row)
    assert "(A)" not in task.doc_to_text(row)
    for response in ("B", "B.", "First we read the table. Row two says y.\nAnswer: B", "\\boxed{y}"):
        assert grade(response, task.gold(row)).state == "correct", response
    assert grade("Because of B, the answer is A.", task.gold(row)).state == "wrong"


def test_mmmu_pro_is_the_mean_of_its_two_forms_over_the_same_problems(mini_world) -> None:
    [suite] = [suite for suite in list_suites() if suite.name == "mmmu_pro"]
    assert suite.tasks == ("mmmu_pro_standard", "mmmu_pro_vision")
    standard, vision = expand(["mmmu_pro"])
    assert (standard.subset, vision.subset) == ("standard (10 options)", "vision")
    problems = [[to_problem(info, row) for row in load_rows(info, mini_world)] for info in (standard, vision)]
    assert [(p.problem_id, p.gold) for p in problems[0]] == [(p.problem_id, p.gold) for p in problems[1]]
    assert max(len(problem.gold.choices) for problem in problems[0]) == 10


# EMMA -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["Multiple Choice", "Multiple choice"])
def test_emma_s_kind_of_question_is_read_in_either_spelling(kind: str) -> None:
    task = find_task("emma_test").module
    assert task.gold(emma_row(type=kind)) == Gold("B", ("x", "y"), kind="choice")
    assert task.gold(emma_row(type=kind, answer="b")) == task.gold(emma_row(type=kind))
    assert task.gold(emma_row(type=kind, options="['x', 'y']")) == task.gold(emma_row(type=kind))


def test_emma_s_open_questions_have_no_options_and_context_comes_first() -> None:
    task = find_task("emma_test").module
    row = emma_row(type="Open-ended", options=None, answer="12", context="Two springs hang from a bar.")
    assert task.question(row) == "Two springs hang from a bar.\n<image_1> Which?"
    assert task.gold(row) == Gold("12")
    assert grade("The image shows twelve springs, so the force is 7.", task.gold(row)).state == "wrong"


# Twins ------------------------------------------------------------------------------------------------------------


def test_synthetic_benchmarks_have_the_shapes_that_make_the_real_files_hard(mini_world) -> None:
    rows = list(load_rows(find_task("mmmu_val"), mini_world))
    assert {row["question_type"] for row in rows} == {"open", "multiple-choice"}
    assert any(row["answer"].startswith("[") for row in rows)
    assert any("<image 1>" in row["options"] for row in rows)
    assert all(isinstance(row["options"], str) for row in rows)
    emma = list(load_rows(find_task("emma_test"), mini_world))
    assert {row["type"] for row in emma} == {"Multiple Choice", "Multiple choice", "Open-ended"}
    assert {row["subject"] for row in emma} == {"Math", "Physics", "Chemistry", "Coding"}
    assert {row["options"] is None for row in emma} == {True, False}
