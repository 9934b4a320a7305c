"""Generated twins of the benchmarks, each in the columns, types and option formats of the real one.

The same task file, prompt, grader and metric run on a benchmark and on its twin. Twins use test scans only.
"""

from __future__ import annotations

from atrl_bench.mini.twins import charts, documents, main_7b, mega, subjects, videos
from atrl_bench.mini.twins.dataset import Dataset

TWINS: dict[str, Dataset] = {
    twin.name: twin for module in (charts, documents, main_7b, mega, subjects, videos) for twin in module.TWINS
}
