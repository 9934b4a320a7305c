"""What `mismatch` says of a sampler, by hand and of the local one, which is the policy."""

import json
import math

import numpy as np
import pytest
from typer.testing import CliRunner

from atrl_bench.analysis.mismatch import CORRECTIONS, advice, at_length, corrected, summary
from atrl_bench.cli import app
from atrl_bench.profiles import Rollouts


def test_responses_of_a_length_are_whole_ones_one_behind_the_other():
    drawn_NL = at_length([np.array([1.0, 2.0, 3.0]), np.array([])], 5)
    assert drawn_NL[0].tolist() == [1, 2, 3, 1, 2]
    either = at_length([np.zeros(2), np.ones(2)], 4)
    assert {tuple(row) for row in either.tolist()} == {(0, 0, 0, 0), (0, 0, 1, 1), (1, 1, 0, 0), (1, 1, 1, 1)}


@pytest.mark.parametrize(
    ("kind", "left_out", "effective"),
    [("sequence_mask", 0.5, 0.5), ("sequence_truncate", 0.0, 0.8), ("token_mask", 0.0, 1.0)],
)
def test_a_small_difference_of_a_token_leaves_out_long_responses(kind, left_out, effective):
    # Half of the responses have a ratio of e^(0.01 * 200) = 7.4, beyond 3; the others one of e^0 = 1. Cut to 3, the
    # effective share is (3 + 1)^2 / (2 (9 + 1)) = 0.8. Of tokens it is (1.01 + 1)^2 / (2 (1.01^2 + 1)) = 1.
    found = corrected(at_length([np.full(200, 0.01, np.float32), np.zeros(200, np.float32)], 200), kind)
    assert found["correction"] == kind
    assert found["left_out"] == pytest.approx(left_out, abs=0.05)  # of 2,000 that are drawn
    assert found["effective_share"] == pytest.approx(effective, abs=0.05)


def test_the_first_correction_that_costs_little_is_advised():
    costs = {"sequence_mask": (0.06, 0.94), "sequence_truncate": (0.0, 0.89), "token_mask": (0.05, 0.9)}
    found = [
        {"correction": kind, "left_out": left_out, "effective_share": share}
        for kind, (left_out, share) in costs.items()
    ]
    assert "token_mask is affordable at 700 tokens" in advice(found, 700)
    assert "no correction" in advice(found[:2], 700)
    assert {*CORRECTIONS, "none"} == {*Rollouts.model_json_schema()["properties"]["correction"]["enum"]}


def test_a_difference_counts_whichever_way_it_goes():
    assert summary("1-16", np.array([0.5, -1.0])) == {"of": "1-16", "tokens": 2, "mean": 0.75, "largest": 1.0}


def test_the_local_sampler_differs_from_its_policy_by_rounding(tmp_path):
    words = ["mismatch", "mini", "--engine", "local", "--problems", "2", "--profile", "smoke", "--out", str(tmp_path)]
    result = CliRunner().invoke(app(), [*words, "--tokens", "2000", "--json"])
    assert result.exit_code == 0, (result.output, result.exception)
    found = json.loads(result.stdout)
    assert 0 < found["mean_difference"] < found["largest_difference"] < 1e-4
    assert found["advice"] == "rollouts.correction: sequence_mask is affordable at 2000 tokens"
    assert [part["of"] for part in found["by_context"]] == ["images"]
    for parts in (found["by_position"], found["by_context"]):
        assert sum(part["tokens"] for part in parts) == found["tokens"]
    assert math.fsum(part["tokens"] * part["mean"] for part in found["by_position"]) == pytest.approx(
        found["tokens"] * found["mean_difference"]
    )
