"""Generated twins of the benchmarks, each in the columns, types and option formats of the real one.

The same task file, prompt, grader and metric run on a benchmark and on its twin. Twins use test scans only.
"""

from __future__ import annotations

from atrl_bench.mini.twins import documents, main_7b, subjects
from atrl_bench.mini.twins.dataset import Dataset

TWINS: dict[str, Dataset] = {twin.name: twin for module in (main_7b, documents, subjects) for twin in module.TWINS}
