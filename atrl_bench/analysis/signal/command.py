"""What `atrl-bench signal` measures, on which problems and with which rules."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from atrl_bench.analysis.signal.gradients import ORACLE, gradient_meter
from atrl_bench.analysis.signal.measure import Signal, measure
from atrl_bench.analysis.signal.rule_choice import UNIFORM, USUAL_RULES, RuleChoice
from atrl_bench.credit.rules import rule_names
from atrl_bench.errors import InvalidFileError, UnknownNameError
from atrl_bench.experiments.run_dir import RunDir
from atrl_bench.training.order import problem_order
from atrl_bench.training.recipe import load_recipe
from atrl_bench.training.sets import folder_of


def signal(
    run_dir: RunDir,
    model: str | None,
    *,
    recipe: str,
    rules: Sequence[str] | None,
    prompts: int,
    held_out: int,
    parameters: str = "all",
    seed: int,
    quiet: bool,
) -> Signal:
    """Return what these rules, or the usual ones, do at a checkpoint; the oracle too where its truth is known."""
    wanted = list(rules if rules is not None else USUAL_RULES)
    for rule in (RuleChoice.of(label).rule for label in wanted):
        if rule not in (names := [*rule_names(), ORACLE]):
            raise UnknownNameError("credit rule", rule, names, next_step="atrl-bench list rules")
    data, model = load_recipe(recipe).data, model or run_dir.profile.model
    if rules is None and run_dir.profile.generated_data:
        wanted.append(ORACLE)
    wanted = [UNIFORM, *(rule for rule in dict.fromkeys(wanted) if rule != UNIFORM)]
    with (
        tempfile.TemporaryDirectory() as folder,
        gradient_meter(
            Path(folder),
            model,
            run_dir.data_dir(folder_of(data)),
            run_dir.profile,
            recipe,
            wanted,
            seed,
            parameters=parameters,
        ) as meter,
    ):
        problems = meter.trainer.data.problems
        if ORACLE in wanted and not any(problem.transcription for problem in problems):
            raise InvalidFileError(
                f"{data} does not say what is to be read from its images.",
                why=f"{ORACLE} puts credit on the tokens that read it.",
                next_step=f"atrl-bench signal --rules {','.join(USUAL_RULES)}",
            )
        if len(problems) < prompts + held_out:
            raise InvalidFileError(
                f"{data} has {len(problems)} problems, fewer than {prompts} and {held_out} held out.",
                next_step=f"atrl-bench signal --prompts {max(9, len(problems) // 2)} --held-out {len(problems) // 4}",
            )
        order = problem_order(len(problems), prompts + held_out, seed)

        def tell(done: int, count: int) -> None:
            if not quiet and sys.stderr.isatty():
                print(f"\r{done} of {count} prompts", end="\n" if done == count else "", file=sys.stderr)

        return measure(meter, order[:prompts], held_out=order[prompts:], model=model, on_prompt=tell)
