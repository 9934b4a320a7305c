"""Overhead divides a step into its phases, and sets the paper's three shares beside the same three of ours."""

import json
from collections import defaultdict
from types import SimpleNamespace

import pytest

from atrl_bench.analysis import step_time
from atrl_bench.analysis.overhead import as_published, overhead, shares_of
from atrl_bench.analysis.random_model import SHAPES, Shape, random_model
from atrl_bench.analysis.step_time import PHASES, REST, StepClock
from atrl_bench.cli.printing import text_of
from atrl_bench.errors import InvalidFileError, MissingDataError, UnknownNameError
from atrl_bench.profiles import load_profile
from atrl_bench.training.clock import PhaseClock
from atrl_bench.training.passes import Passes

TINY = Shape(
    hidden=64,
    layers=2,
    heads=4,
    kv_heads=2,
    intermediate=128,
    vocabulary=600,
    vision_hidden=32,
    vision_depth=2,
    vision_heads=2,
    vision_intermediate=64,
    response_tokens=12,
    visual_tokens=16,
    num_problems=1,
    dtype="float32",
)


def test_a_share_is_the_median_over_rollouts_of_a_phases_part_of_the_whole():
    steps = [
        {"generation": 1.0, "forward": 1.0, REST: 8.0},
        {"generation": 3.0, REST: 7.0},
        {"generation": 2.0, "forward": 2.0, REST: 6.0},
    ]
    assert shares_of(steps) == pytest.approx({"generation": 20.0, "forward": 10.0, REST: 70.0})


def test_the_papers_three_shares_leave_everything_else_out_and_add_up():
    phase = {"generation": 50.0, "scoring": 4.0, "forward": 2.0, "backward": 3.0}
    phase |= {"attention_rows": 0.5, "graph": 0.3, "credit": 0.2}
    shares = as_published([phase])  # 6, 3 and 1 of 10
    assert shares == {"forward": pytest.approx(60), "backward": pytest.approx(30), "AT-RL": pytest.approx(10)}


def test_an_unknown_shape_names_the_known_ones():
    with pytest.raises(UnknownNameError, match="7b"):
        overhead(load_profile("smoke"), shape="70b")


def test_a_large_shape_is_refused_where_there_is_no_gpu_before_it_is_made(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr("atrl_bench.analysis.overhead.measured_steps", None)
    with pytest.raises(MissingDataError, match="overhead --shape tiny"):
        overhead(load_profile("smoke"), shape="3b")


def test_uniform_credit_is_not_compared_with_itself():
    with pytest.raises(InvalidFileError, match="--credit atrl"):
        overhead(load_profile("smoke"), credit="uniform")


def test_the_7b_shape_is_that_of_qwen_2_5_vl_7b():
    from atrl_bench.models.shape import KNOWN_SHAPES

    known, shape = KNOWN_SHAPES["Qwen/Qwen2.5-VL-7B-Instruct"], SHAPES["7b"]
    assert (shape.layers, shape.hidden, shape.intermediate) == (
        known.num_layers,
        known.hidden_size,
        known.intermediate_size,
    )
    head = shape.hidden // shape.heads
    attention = 2 * shape.hidden * head * (shape.heads + shape.kv_heads)
    text = shape.layers * (attention + 3 * shape.hidden * shape.intermediate) + 2 * shape.vocabulary * shape.hidden
    vision = shape.vision_depth * (4 * shape.vision_hidden**2 + 3 * shape.vision_hidden * shape.vision_intermediate)
    assert text + vision == pytest.approx(known.num_parameters, rel=0.02)


def test_the_3b_shape_has_as_many_parameters_as_qwen_2_5_vl_3b():
    model = random_model(SHAPES["3b"], "meta")  # which takes no memory
    # The head is the embedding and counts once.
    assert sum(parameter.numel() for parameter in model.parameters()) == 3_754_622_976
    assert model.lm_head.weight is model.get_input_embeddings().weight
    assert {str(parameter.dtype) for parameter in model.parameters()} == {"torch.bfloat16"}


def test_backward_and_graph_are_phases_of_their_own_and_the_rest_is_what_is_left():
    time = defaultdict(float)
    clock = PhaseClock(lambda: time["now"])

    def pass_by(seconds):
        time["now"] += seconds

    credit = SimpleNamespace(graph_seconds=10.0)
    trainer = SimpleNamespace(backward=lambda loss: pass_by(3.0), credit=credit, clock=None)
    step = StepClock(trainer, clock)
    with clock.phase("forgotten"):
        pass_by(100.0)
    step.start()
    with trainer.clock.phase("forward_backward"):
        pass_by(2.0)
        trainer.backward("loss")
    with trainer.clock.phase("credit"):
        pass_by(1.0)
        trainer.credit.graph_seconds += 0.75
    pass_by(0.5)
    phases = {"forward": 2.0, "backward": 3.0, "graph": 0.75, "credit": 0.25, REST: 0.5}
    assert step.stop() == pytest.approx(phases)


def test_a_machine_that_slows_down_does_not_change_the_ratio_since_each_rollout_has_its_own(monkeypatch):
    steps = {
        "uniform": [{"forward": seconds} for seconds in (1.0, 2.0, 4.0)],
        "atrl": [{"forward": seconds} for seconds in (1.1, 2.4, 4.4)],
    }
    monkeypatch.setattr("atrl_bench.analysis.overhead.measured_steps", lambda *_, **__: steps)
    record = overhead(load_profile("mini"), rollouts=3)
    assert (record.seconds_plain, record.seconds_credited) == (2.0, 2.4)
    assert record.ratio == pytest.approx(1.1), "and not 2.4 / 2"


@pytest.mark.slow
def test_two_rollouts_of_random_weights_have_every_phase():
    record = overhead(load_profile("smoke"), shape=TINY, rollouts=2)
    assert set(record.shares) == set(PHASES) - {"generation_shuffled"}
    assert all(share > 0 for share in record.shares.values())
    assert sum(record.as_published.values()) == pytest.approx(100, abs=2)  # medians of two
    assert 0.5 < record.ratio < 2
    text = text_of(record)
    assert max(map(len, text.splitlines())) <= 80
    assert "65.4" in text
    json.dumps(record.document())


def test_random_responses_are_as_long_as_asked_for_and_nobody_samples_them(monkeypatch):
    monkeypatch.setattr("atrl_bench.training.loop.sample_groups", lambda *_, **__: pytest.fail("it sampled"))
    lengths, score = set(), Passes.score

    def watched(self, model, rollout, *given, **options):
        lengths.update(rollout.mask_BT.sum(1).tolist())
        return score(self, model, rollout, *given, **options)

    monkeypatch.setattr(Passes, "score", watched)
    record = overhead(load_profile("smoke"), shape=TINY, tokens=40, rollouts=1)
    assert lengths == {40}
    assert record.shares["attention_rows"] > 0
    with pytest.raises(InvalidFileError, match="--shape 7b --tokens 40"):
        overhead(load_profile("smoke"), tokens=40)


def test_activations_are_computed_again_where_a_training_computes_them_again(monkeypatch):
    monkeypatch.setattr("atrl_bench.training.arguments.CHECKPOINTING_TOKENS", 16)
    states = []

    def watched(trainer, clock, rows, plain=step_time.one_rollout):
        states.append(any(getattr(layer, "gradient_checkpointing", False) for layer in trainer.model.modules()))
        return plain(trainer, clock, rows)

    monkeypatch.setattr(step_time, "one_rollout", watched)
    overhead(load_profile("smoke"), shape=TINY, rollouts=1)
    assert states == [True] * 4  # two rollouts of two trainers
