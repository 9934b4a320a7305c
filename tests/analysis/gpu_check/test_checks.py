"""Checks run one after the other; whatever becomes of one, the others are made, and all end in time."""

import signal
import time
from pathlib import Path

from atrl_bench.analysis.gpu_check.checks import Measured, SkipCheckError, run_checks


def results(budget=60.0, **checks):
    return {result.name: result for result in run_checks(checks, budget)}


def test_a_value_above_its_limit_fails_with_the_reason_and_gives_no_rate():
    found = results(
        low=lambda: Measured(1.0, "GB", limit=1.0, rates={"device_gb": 80.0}),
        high=lambda: Measured(1.5, "GB", limit=1.0, rates={"device_gb": 80.0}),
    )
    assert (found["low"].state, found["low"].rates) == ("passed", {"device_gb": 80.0})
    assert (found["high"].state, found["high"].reason) == ("failed", "1.5 is above the limit of 1")
    assert found["high"].rates == {}


def test_a_value_that_is_no_number_fails():
    assert results(lost=lambda: Measured(float("nan"), "s"))["lost"].reason == "the value is nan"


def test_what_is_wrong_beside_the_value_fails_and_keeps_the_details():
    found = results(step=lambda: Measured(1.0, "s", details={"loss": 3.0}, wrong="nothing was learned"))["step"]
    assert (found.state, found.reason, found.details) == ("failed", "nothing was learned", {"loss": 3.0})


def broken():
    raise RuntimeError(f"CUDA error: no kernel image\nin {Path.home()}/code")


def without_gpu():
    raise SkipCheckError("no GPU")


def test_a_check_that_breaks_or_does_not_apply_does_not_stop_the_next():
    found = results(broken=broken, without_gpu=without_gpu, good=lambda: Measured(1.0, "s"))
    assert [result.state for result in found.values()] == ["failed", "skipped", "passed"]
    assert found["broken"].reason == "RuntimeError: CUDA error: no kernel image"
    assert found["broken"].details["traceback"][-1].startswith("test_checks.py:")
    assert found["without_gpu"].reason == "no GPU"


def test_a_reason_does_not_tell_where_somebody_lives():
    def lost():
        raise OSError(f"{Path.home()}/weights is not there")

    assert results(lost=lost)["lost"].reason == "OSError: ~/weights is not there"


def test_a_check_that_hangs_is_stopped_and_those_after_it_are_skipped():
    started = time.monotonic()
    found = results(0.2, hangs=lambda: time.sleep(60), next=lambda: Measured(1.0, "s"))
    assert time.monotonic() - started < 10
    assert found["hangs"].state == "failed"
    assert found["hangs"].reason == "not finished within the 0 s of all"
    assert (found["next"].state, found["next"].reason) == ("skipped", "no time left of 0 s")


def test_a_check_that_ends_in_time_leaves_no_alarm_behind():
    assert results(0.2, quick=lambda: Measured(1.0, "s"))["quick"].state == "passed"
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
