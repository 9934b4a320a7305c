"""How each command grows with the store: processor seconds and peak memory of report, explain, status, compare, export.

    python benchmarks/store_growth.py [--answers 30000,60000,120000,250000] [--folder FOLDER] [--commands status,report]
    python benchmarks/store_growth.py --writers

A store is filled through `Store`: the 65 cells of `main_7b` under the profile mini, eight repeats, 1.2 kB of text an
answer. Every command runs in a process of its own, with nothing in it measured but itself: "report" first writes every
page, "report again" finds the store unchanged, "report, one cell grown" finds one of its 65 cells with another verdict.
The exponent is the slope of seconds against answers on logarithmic axes. `--answers 1000000,4000000` needs 1 GB and
4 GB of disk, exports of every answer 2 GB and 8 GB more; `--folder` keeps the stores, and takes those that are there.

`--writers` has one and four processes write to one store, in batches of 8 and of 256 answers with their verdicts and
a heartbeat, beside as many plain flushes of the same bytes to the same disk, and prints answers a second and the
longest wait for one call.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from atrl_bench.evaluation.cell_spec import cell_spec
from atrl_bench.evaluation.tasks import find_task
from atrl_bench.experiments.plan import Plan, plan_table
from atrl_bench.experiments.run_dir import RunDir
from atrl_bench.models.local import TrainedModel
from atrl_bench.profiles import load_profile
from atrl_bench.results.records import Gold, Problem, Response, Verdict
from atrl_bench.results.shared_store import SharedStore
from atrl_bench.results.store import Store

REPEATS, CHARACTERS, SEED = 8, 1200, 0
WORDS = ("the", "angle", "of", "triangle", "is", "so", "we", "have", "degrees", "therefore", "x", "equals", "7", "sum")
COMMANDS = {
    "status": "status",
    "report": "report main_7b --seeds 0",
    "report again": "report main_7b --seeds 0",
    "report, one cell grown": "report main_7b --seeds 0",
    "report --problems 2": "report main_7b --seeds 0 --problems 2",
    "explain": "explain main_7b grpo geoqa_test --seeds 0",
    "compare": "compare main_7b:grpo main_7b:grpo_atrl --task geoqa_test",
    "export parquet": "export parquet",
    "export jsonl": "export jsonl",
}


# A store of any size -------------------------------------------------------------------------------------------------


def fill(root: Path, num_answers: int) -> None:
    """Fill the store of a run folder with so many answers to the whole of `main_7b`."""
    run_dir, rng = RunDir(root, load_profile("mini")), random.Random(SEED)
    plan = plan_table("main_7b", run_dir, seeds=[SEED])
    soup = " ".join(rng.choices(WORDS, k=200_000))
    with run_dir.open_store() as store:
        keys = list(_cells(plan, store))
        num_problems = round(num_answers / len(keys) / REPEATS)
        for key in keys:
            problems = [_problem(number) for number in range(num_problems)]
            store.add_problems(key, problems)
            for start in range(0, num_problems, 256):
                responses = [
                    _response(p, repeat, soup, rng) for p in problems[start : start + 256] for repeat in range(8)
                ]
                store.add_responses(key, responses)
                store.add_verdicts(key, {(r.problem_id, r.repeat): _verdict(rng) for r in responses})
            store.finish_cell(key, expected=num_problems * REPEATS)


def _cells(plan: Plan, store: Store) -> Iterator[str]:
    """Yield the key of every cell of a table, its trainings finished."""
    for number, job in enumerate(plan.jobs):
        model: str | TrainedModel = job.model
        if job.run_spec is not None:
            key, digest = store.add_run(job.run_spec), f"{number:016d}"
            store.finish_run(key, checkpoint=f"checkpoints/{key}", digest=digest, seconds=60.0, summary={})
            model = TrainedModel(key, digest)
        for task, options in job.evaluations:
            data_dir = plan.run_dir.data_dir(find_task(task).folder)
            spec = cell_spec(model, task, plan.run_dir.with_choices(options), profile=plan.profile, data_dir=data_dir)
            yield store.add_cell(spec.as_dict())


def _problem(number: int) -> Problem:
    question = f"Question {number}: what is the sum of the digits that the image shows, and why is it that?"
    return Problem(
        f"p{number:05d}",
        f"g{number // 2}",
        question,
        Gold(str(number % 19)),
        {"category": number % 7, "key": str(number)},
    )


def _response(problem: Problem, repeat: int, soup: str, rng: random.Random) -> Response:
    start = rng.randrange(len(soup) - CHARACTERS)
    return Response(
        problem.problem_id, repeat, "0" * 16, soup[start : start + CHARACTERS], 300, 1.5, rng.random() < 0.02
    )


def _verdict(rng: random.Random) -> Verdict:
    state = rng.choices(["correct", "wrong", "unparseable"], [50, 45, 5])[0]
    return Verdict(state, "7", "fast", "the number is equal" if state == "correct" else "another number")  # type: ignore[arg-type]


def change_a_verdict(root: Path) -> None:
    """Give one answer of the first trained row another verdict."""
    with RunDir(root, load_profile("mini")).open_store() as store:
        key = store.cells(task="geoqa_test")[-1].key
        store.add_verdicts(key, {("p00000", 0): Verdict("correct", "7", "fast", "seen again")})


# The commands --------------------------------------------------------------------------------------------------------


# A process begins with the peak memory of the one that started it: hence a small one in between.
LAUNCHER = """
import os, sys
process = os.posix_spawn(sys.executable, [sys.executable, *sys.argv[1:]], os.environ)
_, status, usage = os.wait4(process, 0)
print(status, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, file=sys.stderr)
"""


def measured(command: str, root: Path) -> tuple[float, float]:
    """Return processor seconds and peak megabytes of a command in a process of its own."""
    words = ["-m", "atrl_bench", *command.split(), "--profile", "mini", "--out", str(root)]
    ended = subprocess.run([sys.executable, "-S", "-c", LAUNCHER, *words], capture_output=True, text=True, check=True)
    status, seconds, megabytes = map(float, ended.stderr.splitlines()[-1].split())
    if status:
        raise SystemExit(f"{command}: {ended.stderr}")
    return seconds, megabytes


def exponent(sizes: list[int], values: list[float]) -> float:
    """Return the slope of a line through the logarithms."""
    if len(sizes) < 2:
        return math.nan
    return statistics.linear_regression([math.log(n) for n in sizes], [math.log(v) for v in values]).slope


def grow(folder: Path, sizes: list[int], commands: list[str]) -> None:
    """Print what each command takes at each size."""
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
    for size in sizes:
        root = folder / str(size)
        if not (root / "store.sqlite").is_file():
            fill(root, size)
        for name in commands:
            if name.endswith("grown"):
                change_a_verdict(root)
            taken[name].append(measured(COMMANDS[name], root))
            seconds, megabytes = taken[name][-1]
            print(f"{size:10,} {name:24} {seconds:8.1f} s {megabytes:8,.0f} MB", flush=True)
    print()
    print(f"{'processor s / peak MB':24}", *(f"{size:>14,}" for size in sizes), "  exponent")
    for name, values in taken.items():
        pairs = (f"{seconds:.1f} / {megabytes:,.0f}" for seconds, megabytes in values)
        slope = exponent(sizes, [seconds for seconds, _ in values])
        print(f"{name:24}", *(f"{pair:>14}" for pair in pairs), f"{slope:10.2f}")


# Several writers -----------------------------------------------------------------------------------------------------


def write_answers(path: Path, writer: int, batch: int, seconds: float) -> tuple[int, float]:
    """Return how many answers a process stored in that time, and its longest wait for one call."""
    soup, num_done, longest = "word " * (CHARACTERS // 5), 0, 0.0
    with SharedStore(path) as store:
        key = store.add_cell({"kind": "evaluation", "task": "geoqa_test", "writer": writer})
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            problems = [_problem(num_done + number) for number in range(batch)]
            responses = [Response(p.problem_id, 0, "0" * 16, soup, 300, 1.5, False) for p in problems]
            verdicts = {(p.problem_id, 0): Verdict("correct", "7", "fast", "the number is equal") for p in problems}
            num_done += batch
            for write in (
                lambda: store.add_problems(key, problems),  # noqa: B023
                lambda: store.add_responses(key, responses),  # noqa: B023
                lambda: store.add_verdicts(key, verdicts),  # noqa: B023
                lambda: store.heartbeat("cell", key, num_done, 10**9),  # noqa: B023
            ):
                before = time.monotonic()
                write()
                longest = max(longest, time.monotonic() - before)
    return num_done, longest


def flush(folder: Path, writer: int, batch: int, seconds: float) -> int:
    """Return how many answers' bytes a process appended to a file in that time, flushed batch by batch."""
    content, num_done, end = b"x" * CHARACTERS * batch, 0, time.monotonic() + seconds
    with (folder / f"flushed-{writer}-{batch}").open("wb") as file:
        while time.monotonic() < end:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
            num_done += batch
    return num_done


def write_together(folder: Path, seconds: float, rounds: int) -> None:
    """Print answers a second and the longest wait of one and of four writers, and plain flushes beside them."""
    print(f"{'batch':>6} {'one':>8} {'four':>8} {'ratio':>6} {'longest, s':>11} {'flushes: one':>13} {'four':>8}")
    for batch in (8, 256):
        stored: dict[int, list[float]] = {1: [], 4: []}
        flushed: dict[int, list[float]] = {1: [], 4: []}
        waits = []
        for number in range(rounds):
            for writers in (1, 4):
                path = folder / f"writers-{batch}-{writers}-{number}.sqlite"
                every = range(writers)
                pool = ProcessPoolExecutor(writers, mp_context=get_context("spawn"))
                with pool, SharedStore(path) if writers > 1 else contextlib.nullcontext():
                    list(pool.map(time.sleep, [0.2] * writers))  # every process has imported what it needs
                    writing = [pool.submit(write_answers, path, n, batch, seconds) for n in every]
                    ended = [future.result() for future in writing]
                    flushing = [pool.submit(flush, folder, n, batch, seconds / 4) for n in every]
                    flushed[writers].append(sum(future.result() for future in flushing) / (seconds / 4))
                stored[writers].append(sum(done for done, _ in ended) / seconds)
                waits.append(max(wait for _, wait in ended))
                path.unlink()
        one, four, *plain = (statistics.median(values[n]) for values in (stored, flushed) for n in (1, 4))
        line = f"{batch:6} {one:8,.0f} {four:8,.0f} {four / one:6.2f} {max(waits):11.2f}"
        print(f"{line} {plain[0]:13,.0f} {plain[1]:8,.0f}", flush=True)


def main() -> None:
    """Print one of the two measurements."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--answers", default="30000,60000,120000,250000")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--commands", default="")
    parser.add_argument("--writers", action="store_true")
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.folder or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        if options.writers:
            write_together(folder, options.seconds, options.rounds)
        else:
            names = options.commands.split(";") if options.commands else list(COMMANDS)
            grow(folder, [int(size) for size in options.answers.split(",")], names)


if __name__ == "__main__":
    main()
