"""Oracle rules in training: on data that carries the truth, refused elsewhere."""

import json
from pathlib import Path

import pytest

from atrl_bench.errors import AtrlBenchError
from atrl_bench.experiments.run_dir import RunDir
from atrl_bench.experiments.train_command import train_recipe
from atrl_bench.profiles import load_profile
from atrl_bench.training.recipe import load_recipe


def test_an_oracle_trains_on_the_tokens_that_the_generator_knows(tmp_path):
    run_dir = RunDir.at(tmp_path, load_profile("smoke")).with_model("mini-perception")
    overrides = {"credit": "oracle_perception", "data": "code_words"}
    result = train_recipe("grpo", overrides, run_dir, quiet=True)
    lines = [json.loads(line) for line in (Path(result.checkpoint) / "metrics.jsonl").read_text().splitlines()]
    areas = [line["credit/anchor_auc"] for line in lines if "credit/anchor_auc" in line]
    assert areas
    assert min(areas) == 1.0, "all the tokens that were read have more credit than any other"
    assert max(line.get("completions/max_length", 0) for line in lines) > 48, "longer than the mini world's"


def test_an_oracle_is_refused_on_data_without_its_truth(tmp_path):
    overrides = {"credit": "oracle_reasoning", "data": "virl39k"}
    with pytest.raises(AtrlBenchError, match="does not say which tokens of a response are reasoning") as refusal:
        train_recipe("grpo", overrides, RunDir.at(tmp_path, load_profile("smoke")), quiet=True)
    assert "code_words" in refusal.value.next_step


def test_an_oracle_is_refused_where_responses_are_not_sampled():
    with pytest.raises(AtrlBenchError, match="sampled responses"):
        load_recipe("dpo", credit="oracle_perception", credit_from="policy")
