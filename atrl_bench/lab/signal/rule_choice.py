"""A rule to be measured: its name, and the settings in which it differs, `atrl:partitions=4:outlier_scale=1`."""

from __future__ import annotations

from dataclasses import dataclass

import yaml

from atrl_bench.credit.config import CreditConfig
from atrl_bench.errors import InvalidFileError

UNIFORM = "uniform"
# The paper's rule, what it starts from, and three that should do worse.
USUAL_RULES = ("atrl", "raw_attention", "hard_truncation", "random", "reverse")
OF_THE_CAPTURE = ("num_layers", "reading")
"""Fields that decide which attention rows are recorded: one recording serves all rules."""


@dataclass(frozen=True)
class RuleChoice:
    """A rule and its settings."""

    label: str
    rule: str
    config: CreditConfig

    @classmethod
    def of(cls, label: str) -> RuleChoice:
        """Return what a label names; whether there is such a rule is for others to say."""
        rule, *assignments = label.split(":")
        pairs = [assignment.partition("=") for assignment in assignments]
        changes = {name: yaml.safe_load(value) for name, _, value in pairs}
        fixed = [name for name in changes if name in OF_THE_CAPTURE]
        try:
            if fixed:
                raise ValueError(f"{fixed[0]} decides about the attention rows, which all rules share.")
            return cls(label, rule, CreditConfig().replace(**changes))
        except (TypeError, ValueError, yaml.YAMLError) as error:
            raise InvalidFileError(
                f"{label!r} is no rule with settings.",
                why=str(error).splitlines()[0],
                next_step="write NAME or NAME:field=value, with fields of CreditConfig",
            ) from None
