"""What `doctor --gpu` measured as a page, beside the JSON that is sent back and that prices read."""

from __future__ import annotations

import json
from pathlib import Path

from atrl_bench.analysis.gpu_check import GpuCheck
from atrl_bench.analysis.overhead import PUBLISHED
from atrl_bench.analysis.step_time import PHASES
from atrl_bench.experiments.cost import RATES
from atrl_bench.experiments.run_dir import GPU_CHECK
from atrl_bench.printable import flat_text
from atrl_bench.report.page import render_page
from atrl_bench.results.files import write_texts, writing

PAGE = "gpu_check.html"


def write_gpu_check(check: GpuCheck, out: Path) -> list[Path]:
    text = json.dumps(check.document(), indent=2, sort_keys=True) + "\n"
    with writing(f"what was measured to {out}"):
        return write_texts(out, {GPU_CHECK: text, PAGE: gpu_check_html(check)})


def gpu_check_html(check: GpuCheck) -> str:
    rates = []
    for name, rate in RATES.items():
        value = f"{check.rates[name]:.4g} {rate.title}" if name in check.rates else ""
        rates.append((name.replace("_", " "), value, f"{rate.default:.4g} {rate.title}", rate.description))
    shares = check.step.shares if check.step else {}
    return render_page(
        "gpu_check.html.j2",
        check=check,
        rates=rates,
        shares=[(PHASES.get(name, name), percent(share)) for name, share in shares.items()],
        published=PUBLISHED,
        percent=percent,
        machine=list(flat_text(check.machine)),
        file=GPU_CHECK,
    )


def percent(value: float) -> str:
    """A share with one decimal, or with two digits that are not zero where it is small."""
    return f"{value:.1f}" if value >= 1 or value == 0 else f"{value:.2g}"
