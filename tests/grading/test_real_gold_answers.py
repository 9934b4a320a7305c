"""Every gold answer of the real MathVision and We-Math rows is graded correct as an answer, and another one wrong."""

from fractions import Fraction

import needs
import pytest

from atrl_bench.evaluation.tasks import find_task
from atrl_bench.grading.grade import GradingPool
from atrl_bench.results.records import Gold

pytestmark = needs.data
ROWS = {"mathvision_testmini": (304, "mathvision"), "wemath_testmini": (150, "wemath")}


@pytest.fixture(scope="module", params=ROWS)
def golds(request):
    import pyarrow.parquet as pq

    num_rows, folder = ROWS[request.param]
    [path] = (needs.DATA / folder).glob("*.parquet")
    table = pq.read_table(path)
    images = [name for name in table.column_names if "image" in name]
    golds = [find_task(request.param).module.gold(row) for row in table.drop(images).to_pylist()]
    assert len(golds) == num_rows
    return golds


def test_the_gold_answer_in_a_box_is_correct(golds):
    with GradingPool() as pool:
        verdicts = pool.grade_many([(f"So it is \\boxed{{{gold.answer}}}.", gold) for gold in golds])
    assert [(gold, v) for gold, v in zip(golds, verdicts, strict=True) if v.state != "correct"] == []


def test_the_text_of_the_gold_option_is_correct_and_of_another_wrong(golds):
    chosen = [gold for gold in golds if gold.kind == "choice" and gold.choices]
    letters = {gold: set(gold.choices) & set("ABCDEFGHI") for gold in chosen}
    plain = [gold for gold in chosen if not letters[gold]]  # an option text that is a letter is read as the letter
    with GradingPool() as pool:
        for shift, state in ((0, "correct"), (1, "wrong")):
            texts = [gold.choices[(ord(gold.answer) - ord("A") + shift) % len(gold.choices)] for gold in plain]
            verdicts = pool.grade_many([(f"\\boxed{{{text}}}", gold) for text, gold in zip(texts, plain, strict=True)])
            assert [(gold, v) for gold, v in zip(plain, verdicts, strict=True) if v.state != state] == []


def test_a_corrupted_gold_answer_is_wrong(golds):
    with GradingPool() as pool:
        verdicts = pool.grade_many([(f"\\boxed{{{_corrupted(gold)}}}", gold) for gold in golds])
    assert [(gold, v) for gold, v in zip(golds, verdicts, strict=True) if v.state != "wrong"] == []


def _corrupted(gold: Gold) -> str:
    if gold.kind == "choice":
        num_choices = len(gold.choices) or 5
        return "ABCDE"[(ord(gold.answer) - ord("A") + 1) % num_choices]
    try:
        return str(float(Fraction(gold.answer) + Fraction(1, 100)))
    except ValueError:
        return gold.answer.replace("3", "5")  # "(3,-4)"
