"""What a metric raises when this machine cannot tell how good an answer is: never a zero, never a guess."""

from __future__ import annotations


class CannotScoreError(Exception):
    """The metric needs something that is not here; the answer counts as "judge failed", not as wrong."""
