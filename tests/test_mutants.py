"""The planted mistakes still fit the code; `tox -e mutants` plants them."""

import pytest
from mutants import ROOT, read_mutants


@pytest.mark.parametrize("mutant", read_mutants(), ids=lambda mutant: mutant.mistake)
def test_a_planted_mistake_changes_one_place_and_names_tests_that_are_there(mutant):
    assert mutant.planted(ROOT) != (ROOT / mutant.file).read_text(encoding="utf-8")
    for test in mutant.tests:
        file, *names = test.split("::")
        assert all(f"def {name}(" in (ROOT / file).read_text(encoding="utf-8") for name in names)
