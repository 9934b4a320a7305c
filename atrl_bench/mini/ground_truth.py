"""What the generated rows of a benchmark really show, which the rows themselves keep to themselves."""

from __future__ import annotations

from atrl_bench.mini.benchmarks.main_7b import posed_mathvision
from atrl_bench.mini.problems import DigitProblem
from atrl_bench.mini.world import random_numbers, sizes
from atrl_bench.profiles import Profile


def mathvision_problems(profile: Profile) -> dict[str, DigitProblem]:
    """Return the problem behind each row of the generated MathVision testmini of this profile, by the row's id."""
    posed = posed_mathvision(sizes(profile)["mathvision"], random_numbers("mathvision"))
    return {str(index): one.problem for index, (_, one, _) in enumerate(posed, start=1)}
