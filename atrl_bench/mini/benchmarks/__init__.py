"""Synthetic benchmarks, each in the columns, types and option formats of the real one.

The same task file, prompt, grader and metric run on a benchmark and on its synthetic version. They use test scans only.
"""

from __future__ import annotations

from atrl_bench.mini.benchmarks import charts, documents, main_7b, mega, reasoning, subjects, videos
from atrl_bench.mini.benchmarks.dataset import SyntheticDataset

SYNTHETIC_BENCHMARKS: dict[str, SyntheticDataset] = {
    benchmark.name: benchmark
    for module in (charts, documents, main_7b, mega, subjects, videos, reasoning)
    for benchmark in module.SYNTHETIC_BENCHMARKS
}
