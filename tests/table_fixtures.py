"""A synthetic store: five small benchmarks answered by rows of known skill, with every state an answer can end in."""

from collections.abc import Callable, Sequence, Set
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from atrl_bench.experiments.definition import TableDefinition, load_table
from atrl_bench.experiments.run_dir import RunDir
from atrl_bench.papers.scores import load_printed
from atrl_bench.profiles import load_profile
from atrl_bench.report.answers import AnswerSource, CreditOf
from atrl_bench.report.build import build_table, made_with
from atrl_bench.report.cells import TableSource
from atrl_bench.report.front_page import write_index
from atrl_bench.report.table_model import Table, TableCell
from atrl_bench.report.table_run import write_report
from atrl_bench.results.records import Gold, Problem, Response, Verdict
from atrl_bench.results.store import Store
from atrl_bench.training.recipe import CreditChoice

SKILLS = {
    "zero_shot": 0.42,
    "grpo": 0.60,
    "dapo": 0.61,
    "gspo": 0.58,
    "sapo": 0.62,
    "ft_rl": 0.41,
    "grpo_atrl": 0.63,
    "dapo_atrl": 0.64,
    "gspo_atrl": 0.62,
    "sapo_atrl": 0.66,
    "grpo_atrl_literal": 0.45,
}
EASE = {"geoqa_test": 0.0, "mathverse_testmini": -0.08, "mathvision_testmini": -0.2, "mathvista_testmini": 0.12}
STATES = ["unparseable", "timed out", "judge failed"]
SUMMARY = {
    "credit/anchor_auc": 0.93,
    "credit/edge_density": 0.31,
    "credit/position_correlation": -0.12,
    "last kl": 0.02,
    "accuracy": 0.5,
}

ROWS, COLUMNS = ("zero_shot", "grpo", "grpo_atrl"), ("geoqa_test", "wemath_testmini")  # of a report
Decorate = Callable[[str], str]

# What a model, a dataset or a file name may hold: nothing of it may ever be more than text.
PAYLOADS = (
    "<script>alert(1)</script>",
    "</style></title></pre></details><img src=x onerror=alert(1)>",
    '" onmouseover="alert(1)',
    "</code></li></ol></article><svg onload=alert(1)><iframe src=javascript:alert(1)>",
    "<a href='https://example.com/'>x</a><link rel=stylesheet href=//example.com/a.css>",
    "<meta http-equiv=refresh content='0;url=https://example.com/'><base href=//example.com/>",
    "{{ 7*7 }}{% raw %}<< 7*7 >>",
    "\\input{/etc/passwd}\\write18{id}$x^2_3$ 100% & # ~ {unbalanced",
    '=HYPERLINK("http://example.com","x")',
    "+1+cmd|' /C calc'!A0",
    "\x1b[2J\x1b]0;title\x07\x9b31m",
    "a\u202eb\u2066c\u200bd\ufeff",
    "| cell | **bold** [link](javascript:alert(1)) `code`\n# heading",
    "nul\0and \ud800 surrogate",
    "ζ ≥ 0.7 数学 🎉",
)


@pytest.fixture(scope="session")
def payloads() -> tuple[str, ...]:
    return PAYLOADS


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test that takes a `payload`, and lists none itself, on all of them."""
    own = [mark.args[0] for mark in metafunc.definition.iter_markers("parametrize")]
    if "payload" in metafunc.fixturenames and "payload" not in own:
        metafunc.parametrize("payload", PAYLOADS)


def poisoned(value, payload: str):
    """Return a copy of the table with the payload in front of every text in it, except for keywords and numbers."""
    if is_dataclass(value):
        keep = {"state", "metric", "test"} if type(value).__name__ in ("TableCell", "Difference") else set()
        changes = {f.name: poisoned(getattr(value, f.name), payload) for f in fields(value) if f.name not in keep}
        return replace(value, **changes)
    if isinstance(value, tuple):
        return tuple(poisoned(item, payload) for item in value)
    return payload + value if isinstance(value, str) and value else value


UNMEASURED = ("step_grpo", "vppo")  # in these tests: a row without a number, but with a reason, is a case of its own


def main_table(rows: Sequence[str] | None, columns: Sequence[str] | None) -> TableDefinition:
    """Return the main table with these rows and columns, two of its rows not measurable."""
    changes = {
        "recipe": None,
        "credit": CreditChoice(rule="uniform"),
        "not_measured": "Its reward needs annotations that these tests do not have.",
    }
    definition = load_table("main_7b").select(rows=rows, columns=columns)
    members = [row.model_copy(update=changes) if row.id in UNMEASURED else row for row in definition.rows]
    return definition.model_copy(update={"rows": tuple(members)})


def fill(
    store: Store,
    definition: TableDefinition,
    *,
    seeds: int = 1,
    problems: int = 12,
    leave_out: Set[tuple[str, str]] = frozenset(),
    decorate: Decorate = str,
):
    """Return (cell_keys, runs) after answering every problem; the same arguments give the same store."""
    store._connection.execute("PRAGMA synchronous = OFF")  # nobody pulls the plug of a test
    keys: dict[tuple[str, str], list[str]] = {}
    runs: dict[str, list] = {}
    for r, row in enumerate(row for row in definition.rows if not row.not_measured):
        for seed in range(seeds if row.recipe else 1):
            digest, model = f"{r:02d}{seed}" * 8, "mini"
            if row.recipe:
                recipe = {"name": row.recipe, "objective": row.recipe, "entropy_fraction": None, "schedule": "strict"}
                recipe["credit"] = row.credit.model_dump()
                run = store.add_run({"recipe": recipe, "row": row.id, "seed": seed})
                summary = {name: value + 0.01 * seed for name, value in SUMMARY.items()}
                store.finish_run(run, checkpoint=f"checkpoints/{run}", digest=digest, seconds=60.0, summary=summary)
                runs.setdefault(row.id, []).append(store.run(run))
                model = run
            for c, column in enumerate(definition.columns):
                if (row.id, column.id) in leave_out:
                    continue
                spec = {
                    "kind": "evaluation",
                    "task": column.task,
                    "model_digest": digest,
                    "model_name": model,
                }
                spec |= {"decoding": {"repeats": 2, "temperature": 0.1}, "judge": None, "grader_version": "1"}
                key = store.add_cell(spec)
                keys.setdefault((row.id, column.id), []).append(key)
                ids = [decorate(f"{column.id}/{i}") for i in range(problems)]
                size = 5 if column.id == "mathverse_testmini" else 1
                store.add_problems(
                    key,
                    [
                        Problem(
                            name,
                            f"g{i // size}",
                            decorate(f"What is the sum of the digits {i % 10} and {(i * 7) % 10} in the image?"),
                            Gold(
                                decorate(str(i % 10 + (i * 7) % 10)),
                                (decorate("17"), decorate("12")) if i % 4 == 0 else (),
                            ),
                        )
                        for i, name in enumerate(ids)
                    ],
                )
                # The difficulty of a problem is the same for every row, which is what pairing lives from.
                difficulty = np.random.default_rng(c).uniform(0, 1, problems)
                luck = np.random.default_rng((c, r, seed)).normal(0, 0.12, (problems, 2))
                responses, verdicts = [], {}
                for i, name in enumerate(ids):
                    for repeat in range(2):
                        right = difficulty[i] + luck[i, repeat] < SKILLS[row.id] + EASE.get(column.id, 0.05)
                        state = "correct" if right else "wrong" if i % 9 else STATES[i % 3 if i % 27 else 2]
                        if state == "judge failed" and i % 27:
                            state = "wrong"
                        text = decorate(
                            f"The digits are {i % 10} and {(i * 7) % 10}. \\boxed{{{i % 10 + (i * 7) % 10}}}"
                        )
                        responses.append(Response(name, repeat, "hash", text, 20, 0.1, truncated=i % 40 == 1))
                        extracted = None if state == "unparseable" else decorate("12")
                        verdicts[name, repeat] = Verdict(state, extracted, "fast", decorate("compared as numbers"))
                store.add_responses(key, responses)
                store.add_verdicts(key, verdicts)
                store.add_skipped(key, "broken", decorate("the image does not decode"))
                store.finish_cell(key, expected=2 * problems)
    return keys, runs


def build(definition: TableDefinition, store: Store, **options: Any) -> Table:
    """Return the table with its recipes, and with what the paper prints."""
    source = TableSource(definition, store, recipes=definition.recipes(), **options)
    return build_table(source, printed=load_printed(definition))


@pytest.fixture(scope="session")
def make_table(tmp_path_factory):
    """Return a function that fills a new store and builds the table from it."""

    def make(
        *,
        seeds: int = 1,
        problems: int = 40,
        profile: str = "mini",
        path: Path | None = None,
        rows: list[str] | None = None,
        columns: list[str] | None = None,
        pairs: tuple[tuple[str, str], ...] = (),
        forget: tuple[str, int] | None = None,
        **answers: Any,
    ) -> Table:
        definition = main_table(rows, columns).model_copy(update={"pairs": pairs})
        path = path or tmp_path_factory.mktemp("store") / "store.sqlite"
        with Store.open(path) as store:
            keys, runs = fill(store, definition, seeds=seeds, problems=problems, **answers)
            if forget:  # the evaluations of one row's training seed, as if they had not been run yet
                row, seed = forget
                keys |= {at: of[:seed] + of[seed + 1 :] for at, of in keys.items() if at[0] == row}
            sizes, of_seeds = load_profile(profile), tuple(range(seeds))
            table = build(definition, store, profile=sizes, cell_keys=keys, runs=runs, seeds=of_seeds)
            return made_with(table, sizes, {"python": "3.11", "torch": "2.9"})

    return make


@pytest.fixture(scope="session")
def make_report():
    """Return a function that fills a new store and writes the whole report of it, pages of answers included."""

    def make(
        out: Path,
        *,
        seeds: int = 1,
        rows: tuple[str, ...] = ROWS,
        columns: tuple[str, ...] = COLUMNS,
        credit_of: CreditOf = lambda _: {},
        max_problems: int | None = None,
        **answers: Any,
    ) -> RunDir:
        run_dir = RunDir(out, load_profile("mini"))
        out.mkdir(parents=True, exist_ok=True)
        definition = main_table(rows, columns)
        with Store.open(run_dir.store_path) as store:
            keys, runs = fill(store, definition, seeds=seeds, **answers)
            given = {"cell_keys": keys, "runs": runs, "seeds": tuple(range(seeds))}
            table = build(definition, store, profile=run_dir.profile, **given)
            source = AnswerSource(store, keys, lambda folder: None, credit_of, max_problems)
            write_report(table, run_dir.reports, source)
        write_index(run_dir)
        return run_dir

    return make


@pytest.fixture(scope="session")
def make_answers():
    """Return a function that fills a new store, writes its report, and returns what writes it again as it then is."""

    def make(out: Path) -> tuple[RunDir, Callable[[], None]]:
        run_dir, definition = RunDir(out, load_profile("mini")), main_table(ROWS, COLUMNS)
        with Store.open(run_dir.store_path) as store:
            keys, runs = fill(store, definition)

        def write() -> None:
            with Store.open(run_dir.store_path) as store:
                table = build(definition, store, profile=run_dir.profile, cell_keys=keys, runs=runs)
                write_report(table, run_dir.reports, AnswerSource(store, keys, lambda _: None))

        write()
        return run_dir, write

    return make


@pytest.fixture(scope="session")
def table(make_table) -> Table:
    return make_table(seeds=2)


@pytest.fixture(scope="session")
def tiny(make_table) -> Table:
    """Five rows by two columns, a cell missing and a row that nothing measures."""
    rows = ["zero_shot", "grpo", "dapo", "vppo", "grpo_atrl"]
    columns = ["geoqa_test", "wemath_testmini"]
    return make_table(seeds=2, problems=6, leave_out={("dapo", "wemath_testmini")}, rows=rows, columns=columns)


def cell_of(table: Table, row: str, column: str) -> TableCell:
    index = [item.id for item in table.columns].index(column)
    return next(item for item in table.rows if item.id == row).cells[index]
