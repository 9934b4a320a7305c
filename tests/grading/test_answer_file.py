"""`atrl-bench grade`: every line gets a verdict and a reason, a bad line is named."""

import codecs
import json
import os
import threading
from dataclasses import asdict
from pathlib import Path

import needs
import pytest

from atrl_bench.cli.printing import text_of
from atrl_bench.errors import InvalidFileError, MissingDataError
from atrl_bench.grading.answer_file import grade_file


def written(path: Path, *lines: object) -> Path:
    path.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines))
    return path


def test_each_line_gets_a_state_and_a_reason(tmp_path):
    file = written(
        tmp_path / "answers.jsonl",
        {"response": r"so \boxed{5 cm}", "gold": "5"},
        {"response": r"\boxed{jade}", "gold": "B", "choices": ["opal", "jade"]},
        "",
        {"response": r"\boxed{2.02}", "gold": 2, "tolerance": 0.05},
        {"response": "", "gold": "5", "note": "other fields are left alone"},
    )
    file.write_bytes(codecs.BOM_UTF8 + file.read_bytes())
    graded = grade_file(file)
    assert [(line.line, line.state, line.extracted) for line in graded.answers] == [
        (1, "correct", "5 cm"),
        (2, "correct", "jade"),
        (4, "correct", "2.02"),
        (5, "unparseable", None),
    ]
    assert graded.answers[1].why == "the text of option B, gold B"
    assert asdict(graded.summary) == {"lines": 4, "mean": 0.75, "states": {"correct": 3, "unparseable": 1}}
    assert all(len(line) <= 80 for line in text_of(graded).splitlines())
    assert text_of(graded).endswith("4 answers: 3 correct, 1 unparseable, mean 75.00 %")


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "JSONDecodeError"),
        ("[" * 100_000, "Error"),
        ({"gold": "5"}, "'response'"),
        ({"response": "5"}, "'gold'"),
        ({"response": None, "gold": "5"}, "a text"),
        ({"response": "5", "gold": "5", "kind": "nmber"}, "nmber"),
        ({"response": "5", "gold": "5", "metric": "anlss"}, "anlss"),
        ({"response": "5", "gold": "\ud800"}, "Invalid JSON: unexpected end of hex escape\n"),  # half of a character
        ({"response": "5", "gold": "5", "choices": [1, 2]}, "a valid string"),
        ({"response": "5", "gold": "5", "choices": 3}, "`choices` is 3"),
        ({"response": "5", "gold": "5", "tolerance": []}, "`tolerance` is []"),
        ({"response": "5", "gold": "5", "tolerance": "5%"}, "a valid number"),
        ({"response": "5", "gold": "5", "tolerance": -1}, "greater than or equal to 0"),
        ({"response": "5", "gold": "5", "precision": "1"}, "`precision` is '1'"),
        ({"response": "5", "gold": "5", "precision": -1}, "greater than or equal to 0"),
        ({"response": "5", "gold": "5", "references": "5.1"}, "`references` is '5.1'"),
        ({"response": "5", "gold": "5", "metric": "relaxed", "rules": "years"}, "JSONDecodeError"),
        ({"response": "5", "gold": "5", "metric": "relaxed", "rules": "[1]"}, "a JSON object"),
        ({"response": "5", "gold": "B", "metric": "mra"}, "to float: 'B'"),
        ({"response": "5", "gold": "inf", "metric": "mra"}, "compares with a number"),
        ({"response": "5", "gold": "5", "metric": "vqa"}, "the annotators"),
    ],
)
def test_a_bad_line_is_named_with_what_is_wrong(tmp_path, line, reason):
    file = written(tmp_path / "answers.jsonl", {"response": "5", "gold": "5"}, line)
    with pytest.raises(InvalidFileError, match=r"answers\.jsonl:2") as caught:
        grade_file(file)
    assert reason in str(caught.value)


def test_a_missing_file_and_one_without_answers_are_errors(tmp_path):
    with pytest.raises(InvalidFileError, match="has no answers"):
        grade_file(written(tmp_path / "empty.jsonl"))
    with pytest.raises(MissingDataError):
        grade_file(tmp_path / "none.jsonl")


def test_answers_come_through_a_pipe_too(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    writing = threading.Thread(target=written, args=(tmp_path / "pipe", {"response": r"\boxed{5}", "gold": 5}))
    writing.start()
    assert grade_file(tmp_path / "pipe").summary.lines == 1
    writing.join()


@needs.mathruler
@pytest.mark.parametrize(
    ("response", "gold", "right"),
    [
        (r"So it is \boxed{\frac{1}{2}}.", "0.5", True),
        (r"\boxed{12^\circ}", "12", True),
        (r"\boxed{2/4}", "1/2", False),  # a fraction that is not reduced
        ("The answer is 12.", "12", False),  # no box
        (r"\boxed{(9**9)**(9**9)}", "12", False),  # within the worker's limits
    ],
)
def test_mathruler_decides_by_the_last_box(tmp_path, response, gold, right):
    file = written(tmp_path / "a.jsonl", {"response": response, "gold": gold, "metric": "mathruler"})
    (line,) = grade_file(file).answers
    assert (line.state == "correct") is right
