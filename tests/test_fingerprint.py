import pytest

from atrl_bench.fingerprint import code_fingerprint, normal_form

SOURCE = '''
"""A benchmark."""
from typing import TYPE_CHECKING

from atrl_bench.evaluation import wording
from atrl_bench.evaluation.old_hooks import hooks, prepare as made_ready

if TYPE_CHECKING:
    from PIL.Image import Image

COLUMNS = ("question",)
_LIMIT: int = 3


def _plus(number: int) -> int:
    """Return a number and the limit."""
    return number + _LIMIT  # as the paper does


def gold(row):
    found = [_plus(cell) for cell in row if cell]
    return wording.render(found, kind="choice"), made_ready
'''

SAME = """
from atrl_bench.evaluation.hooks import hooks, prepare
from atrl_bench.models.templates import render

COLUMNS = ("question",)
_MOST = 3


def _more(value):
    return value + _MOST


def gold(one_row):
    cells = [_more(value) for value in one_row if value]
    return render(cells, kind="choice"), prepare
"""


def test_modules_imports_wording_types_and_local_names_may_change():
    assert normal_form(SOURCE) == normal_form(SAME)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("value + _MOST", "value - _MOST"),
        ('("question",)', '("query",)'),
        ("_MOST = 3", "_MOST = 4"),
        (" if value", ""),
        ('"choice"', '"open"'),
        ("def gold", "def answer"),
        ("render(cells", "draw(cells"),
    ],
)
def test_what_the_code_does_may_not(old, new):
    assert normal_form(SAME.replace(old, new)) != normal_form(SAME)


def test_two_names_that_were_two_stay_two():
    assert normal_form("def f(a, b):\n    return a - b") != normal_form("def f(a, b):\n    return b - a")


def test_a_default_in_a_class_stays_a_field():
    field, attribute = "class A:\n    x: int = 3", "class A:\n    x = 3"
    assert normal_form(field) != normal_form(attribute)


def test_files_are_named_together_whatever_they_are_called(tmp_path):
    for name, text in {"a.py": SOURCE, "b.py": "X = 1", "c.py": "X = 1", "d.py": SAME}.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    first, second = [tmp_path / "a.py", tmp_path / "b.py"], [tmp_path / "c.py", tmp_path / "d.py"]
    assert code_fingerprint(first) == code_fingerprint(second)
