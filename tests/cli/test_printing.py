"""Records are printed by one printer: aligned, eighty columns wide, no name broken, no colour outside a terminal."""

import json
import math
import os
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from atrl_bench.cli.printing import show, text_of
from atrl_bench.experiments.evaluate_command import ModelScores, TaskScores
from atrl_bench.printable import Block, Command, Record, Rows
from atrl_bench.results.statistics.means import Estimate

PATH = "/a/folder/whose/name/is/much/longer/than/what/is/left/of/eighty/columns/of/a/line/on/a/terminal"


@dataclass(frozen=True)
class Example(Record):
    contents: tuple[Block, ...]

    def blocks(self) -> Iterable[Block]:
        return self.contents


def printed(*contents: Block) -> list[str]:
    return text_of(Example(contents)).split("\n")


def test_columns_are_as_wide_as_their_cells_and_numbers_stand_on_the_right():
    rows = Rows([("a", "1", "x"), ("long name", "100", "y")], ("", "count", ""), right=(1,))
    assert printed(rows) == ["             count", "  a              1  x", "  long name    100  y"]


def test_the_last_cell_goes_on_below_itself_and_no_path_is_broken():
    lines = printed(Rows([("name", f"{'word ' * 20}{PATH} end")]))
    assert lines[0].startswith("  name  word word")
    assert all(line.startswith(" " * 8) for line in lines[1:])
    assert f"        {PATH}" in lines
    assert all(len(line) <= 80 for line in lines if PATH not in line)


def test_a_row_of_fewer_cells_has_the_rest_of_the_line_to_itself():
    rows = Rows([("ok", "disk", "enough"), ("", "-> a command that is wider than the second column")], indent=0)
    assert printed(rows) == ["ok  disk  enough", "    -> a command that is wider than the second column"]


def test_a_row_that_begins_with_spaces_belongs_to_the_one_above():
    rows = Rows([("task", "1"), ("  part", "2"), (f"  {'word ' * 20}",)], right=(1,), indent=0)
    assert printed(rows) == ["task    1", "  part  2", "  word" + " word" * 14, "  word word word word word"]


def test_a_cell_that_is_cut_says_so():
    [line] = printed(Rows([("name", "word " * 30)], cut=True))
    assert len(line) <= 80
    assert line.endswith("…")


def test_scores_of_a_benchmarks_parts_are_told_apart_whatever_their_names_have_in_common():
    score = Estimate(0.5, 0.1, 3.0, 4, 4)
    parts = [f"{name}_of_a_very_long_kind_{end}" for name in ("object", "room") for end in ("easy", "hard")]
    by = {"question_type": dict.fromkeys(["object_size_estimation", *parts], score)}
    facts = {"skipped": {}, "truncated": 0, "tokens": 1.0, "thought_tokens": 0.0, "states": {}, "variants": {}}
    task = TaskScores("vsi", "VSI", "m", "k", 4, 1, headline="acc@1", scores={}, by=by, judge=None, **facts)
    lines = text_of(ModelScores((task,))).split("\n")
    assert lines[0] == "  by question_type:"
    names = [line.partition(" acc@1")[0].rstrip() for line in lines[1:6]]
    assert names[0] == "    object_size_estimation"
    assert len(set(names)) == 5
    assert max(map(len, lines)) <= 80


def test_wide_characters_are_counted_as_a_terminal_shows_them():
    assert printed(Rows([("漢字", "x"), ("abcd", "y")], indent=0)) == ["漢字  x", "abcd  y"]


def test_hostile_characters_are_spelt_out():
    assert printed("a\x1b[2Jb", Rows([("\x07", "x")])) == ["a<U+001B>[2Jb", "  <U+0007>  x"]


def test_a_narrow_terminal_gets_lines_of_its_width():
    program = "from atrl_bench.cli.printing import text_of; print(text_of(['word ' * 30]))"
    environment = os.environ | {"COLUMNS": "40"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert max(map(len, done.stdout.splitlines())) == 39  # eight words


def test_a_terminal_without_a_character_gets_its_number_instead():
    environment = os.environ | {"PYTHONIOENCODING": "latin-1"}
    listing = [sys.executable, "-m", "atrl_bench", "list"]
    done = subprocess.run(listing, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "\\u2026" in done.stdout  # the end of a line that is cut


def test_a_command_that_is_longer_than_a_line_can_be_pasted():
    command = f"atrl-bench run-table main_7b --profile smoke --rows {','.join(['grpo'] * 12)} --out somewhere"
    first, *rest = printed(Command(command))
    assert first == "Next:"
    assert all(line.endswith("\\") for line in rest[:-1])
    assert "".join(line.strip().removesuffix("\\") for line in rest) == command
    assert printed(Command("atrl-bench list")) == ["Next: atrl-bench list"]


def test_a_record_is_text_without_colours_or_one_json_document(capsys):
    record = Example(("[bold]not markup[/bold]", Rows([("x", "1")], ("head", "n"))))
    show(record, as_json=False)
    assert capsys.readouterr().out == "[bold]not markup[/bold]\n  head  n\n  x     1\n"
    show(record, as_json=True)
    assert (
        json.loads(capsys.readouterr().out)[0] == "[bold]not markup[/bold]"
    )  # of a record of one field, what it holds


@dataclass(frozen=True)
class Part:
    name: str
    share: float


@dataclass(frozen=True)
class Whole(Record):
    folder: Path
    is_done: bool
    mean: float
    empty: str
    seconds: np.float32
    states: dict[str, int]
    parts: tuple[Part, ...]
    files: list[Path]
    next: str


def test_a_record_without_a_layout_of_its_own_is_printed_by_its_fields(capsys):
    parts = Part("one", 0.25), Part("two", math.inf)
    states, files = {"correct": 3}, [Path("a.csv"), Path("b.csv")]
    record = Whole(Path("runs"), True, math.nan, "", np.float32(1.5), states, parts, files, "atrl-bench list")
    show(record, as_json=False)
    assert capsys.readouterr().out.splitlines() == [
        *("folder   runs", "is done  yes", "seconds  1.5"),
        *("states", "  correct  3"),
        *("parts", "  name  share", "  one   0.25", "  two   -"),
        *("files", "  a.csv", "  b.csv"),
        "Next: atrl-bench list",
    ]
    show(record, as_json=True)
    document = json.loads(capsys.readouterr().out)
    assert (document["folder"], document["is_done"], document["mean"], document["seconds"]) == ("runs", True, None, 1.5)
    assert document["parts"] == [{"name": "one", "share": 0.25}, {"name": "two", "share": None}]


def test_plain_values_are_printed_as_records_are(capsys):
    show([Path("a.csv"), Path("b.csv")], as_json=False)
    assert capsys.readouterr().out == "a.csv\nb.csv\n"
    show({"job": 3}, as_json=False, text="Submitted 3.")
    assert capsys.readouterr().out == "Submitted 3.\n"
