"""The seconds of a step divide into phases that add up to the whole."""

from collections import defaultdict
from types import SimpleNamespace

import pytest

from atrl_bench.analysis.step_phases import REST, StepPhases
from atrl_bench.training.clock import PhaseClock


def test_backward_and_graph_are_phases_of_their_own_and_the_rest_is_what_is_left():
    time = defaultdict(float)
    clock = PhaseClock(lambda: time["now"])

    def pass_by(seconds):
        time["now"] += seconds

    accelerator = SimpleNamespace(backward=lambda loss: pass_by(3.0))
    trainer = SimpleNamespace(accelerator=accelerator, credit=SimpleNamespace(graph_seconds=10.0), clock=None)
    phases = StepPhases(trainer, clock)
    with clock.phase("forgotten"):
        pass_by(100.0)
    phases.start()
    with trainer.clock.phase("forward_backward"):
        pass_by(2.0)
        accelerator.backward("loss")
    with trainer.clock.phase("credit"):
        pass_by(1.0)
        trainer.credit.graph_seconds += 0.75
    pass_by(0.5)
    seconds, parts = phases.stop()
    assert seconds == pytest.approx(6.5)
    assert parts == pytest.approx({"forward": 2.0, "backward": 3.0, "graph": 0.75, "credit": 0.25, REST: 0.5})
