"""What `doctor --gpu` found as a page, beside the JSON that is sent back."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from atrl_bench.analysis.gpu_check.checks import CheckResult
from atrl_bench.analysis.gpu_check.record import GpuCheck, value_text
from atrl_bench.analysis.step_phases import PHASES
from atrl_bench.experiments.cost import RATES
from atrl_bench.experiments.run_dir import GPU_CHECK
from atrl_bench.flatten import flat
from atrl_bench.report.page import render_page
from atrl_bench.results.files import write_texts, writing

PAGE = "gpu_check.html"
MARKS = {"passed": "✓", "failed": "✗", "skipped": "–"}


@dataclass(frozen=True)
class RateRow:
    """One constant of cost estimates, as it was measured or is assumed."""

    name: str
    value: str
    assumed: str
    basis: str


def write_gpu_check(record: GpuCheck, out: Path) -> list[Path]:
    """Write the JSON and the page into `out`; return the paths, the JSON first."""
    texts = {
        GPU_CHECK: json.dumps(record.document(), indent=2, sort_keys=True, allow_nan=False) + "\n",
        PAGE: gpu_check_html(record),
    }
    with writing(f"what was measured to {out}"):
        return write_texts(out, texts)


def gpu_check_html(record: GpuCheck) -> str:
    """Return the page: offline, without scripts, in the style of the tables."""
    return render_page(
        "gpu_check.html.j2",
        record=record,
        marks=MARKS,
        values={check.name: value_text(check) for check in record.checks},
        machine=dict(_labelled(record.machine)),
        details={check.name: dict(_labelled(check.details)) for check in record.checks},
        steps=[check for check in record.checks if "phases" in check.details],
        phase_rows=_phase_rows,
        percent=percent,
        rates=_rate_rows(record.rates),
        file=GPU_CHECK,
    )


def percent(value: float) -> str:
    """Return a share with one decimal, or with two digits that are not zero where it is small."""
    return f"{value:.1f}" if value >= 1 or value == 0 else f"{value:.2g}"


def _phase_rows(check: CheckResult) -> list[tuple[str, ...]]:
    return [
        (
            PHASES.get(phase["phase"], phase["phase"]),
            f"{phase['seconds']:.3f}",
            percent(phase["share_percent"]),
            "" if phase["peak_gb"] is None else f"{phase['peak_gb']:.2f}",
        )
        for phase in check.details["phases"]
    ]


def _rate_rows(measured: Mapping[str, Any]) -> list[RateRow]:
    rows = []
    for name, rate in RATES.items():
        value = f"{measured[name]:.4g} {rate.title}" if name in measured else ""
        rows.append(RateRow(name.replace("_", " "), value, f"{rate.default:.4g} {rate.title}", rate.description or ""))
    return rows


def _labelled(values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield every value by its name, without the phases, which have a table of their own."""
    for name, value in flat(values).items():
        if name != "phases":
            label = name.replace("_", " ").replace(".", ": ")
            yield label, ", ".join(map(_text, value)) if isinstance(value, list | tuple) else _text(value)


def _text(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
