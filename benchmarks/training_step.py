"""GRPO with token credit against plain GRPO: seconds of a rollout and its updates, and where they go.

    python benchmarks/training_step.py [--recipe grpo] [--credit atrl] [--rollouts 7] [--threads 1]

Both trainers start from the mini base and take turns in one process. The learning rate is zero, so both see the same
responses and do the same work; the optimiser step itself is taken. Prints a ratio of medians (target: at most 1.05) and
each phase's share, median over rollouts. Seconds are wall seconds on a GPU and CPU seconds of this process without one,
which other processes on the machine do not lengthen.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import torch

from atrl_bench.mini import BASE, write_world
from atrl_bench.profiles import load_profile
from atrl_bench.training import clock
from atrl_bench.training.order import problem_order
from atrl_bench.training.recipe import load_recipe
from atrl_bench.training.run import _build

TARGET = 1.05
now = time.perf_counter if torch.cuda.is_available() else time.process_time


def one_rollout(trainer, rows):
    """Return the seconds of one rollout with all its updates, and of each phase in it."""
    trainer.clock.pop()
    started = now()
    for _ in range(trainer.updates_per_rollout):
        for _ in range(trainer.args.gradient_accumulation_steps):
            trainer.training_step(trainer.model, rows, None)
        torch.nn.utils.clip_grad_norm_(trainer.model.parameters(), trainer.args.max_grad_norm)
        trainer.optimizer.step()
        trainer.model.zero_grad()
        trainer.state.global_step += 1
    seconds = now() - started
    return seconds, trainer.clock.pop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--recipe", default="grpo")
    parser.add_argument("--credit", default="atrl")
    parser.add_argument("--rollouts", type=int, default=7)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    clock._now = now if not torch.cuda.is_available() else clock._now
    profile = load_profile("mini")
    with tempfile.TemporaryDirectory() as folder:
        data_dir = write_world(Path(folder) / "world", profile)
        contexts, trainers = [], {}
        for credit in ("uniform", options.credit):
            recipe = load_recipe(options.recipe, credit=credit)
            contexts.append(_build(Path(folder) / credit, recipe, profile, str(BASE), data_dir, 0))
            trainer = trainers[credit] = contexts[-1].__enter__()
            trainer.model.train()
            trainer.create_optimizer()
            trainer.current_gradient_accumulation_steps = trainer.args.gradient_accumulation_steps
            for group in trainer.optimizer.param_groups:
                group["lr"] = 0.0
        seconds = {credit: [] for credit in trainers}
        phases = []
        per_rollout = profile.training.prompts_per_rollout
        order = problem_order(len(trainer.data.problems), per_rollout * (options.rollouts + 1), 0)
        for rollout in range(options.rollouts + 1):
            problems = order[rollout * per_rollout : (rollout + 1) * per_rollout]
            rows = [{"row": row} for row in problems for _ in range(profile.training.group_size)]
            for credit, trainer in trainers.items():
                total, parts = one_rollout(trainer, rows)
                if rollout > 0:  # the first one of each also pays for what is set up once
                    seconds[credit].append(total)
                    if credit == options.credit:
                        phases.append(parts | {"optimiser and the rest": total - sum(parts.values())})
        for context in contexts:
            context.__exit__(None, None, None)
    plain, weighted = (statistics.median(seconds[credit]) for credit in trainers)
    print(f"{options.recipe}, profile mini, {options.threads} thread(s), medians of {options.rollouts} rollouts")
    print(f"plain {plain:.3f} s   {options.credit} {weighted:.3f} s   ratio {weighted / plain:.3f} (target {TARGET})")
    for name in sorted({name for parts in phases for name in parts}):
        shares = [parts.get(name, 0.0) / total for parts, total in zip(phases, seconds[options.credit], strict=True)]
        print(f"  {name:<24} {statistics.median(shares):6.1%}")


if __name__ == "__main__":
    main()
