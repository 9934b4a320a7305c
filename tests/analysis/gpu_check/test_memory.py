"""Peaks of memory belong to the phase in which they were reached."""

from atrl_bench.analysis.gpu_check import memory
from atrl_bench.analysis.step_phases import REST


def test_a_phase_keeps_its_own_peak_without_that_of_the_phase_inside_it(monkeypatch):
    # What a GPU would say each time it is asked, each reading beginning a new peak.
    readings = iter([1, 5, 9, 6, 2])
    monkeypatch.setattr(memory, "peak_bytes", lambda: next(readings))
    clock = memory.PeakClock()
    # Reads 1, of what came before, and 5, of training so far; then 9 of scoring, and 6 of training since.
    with clock.phase("training"), clock.phase("scoring"):
        pass
    clock.note_peak()  # reads 2
    assert clock.peaks == {REST: 2, "training": 6, "scoring": 9}


def test_a_process_without_a_gpu_tells_the_most_memory_it_has_had():
    before = memory.peak_bytes()
    held = bytearray(64 << 20)
    held[::4096] = b"x" * len(held[::4096])  # a page is in memory once it is written
    assert memory.peak_bytes() >= before
    assert memory.peak_bytes() > len(held)
