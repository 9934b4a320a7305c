"""How a base of a world is trained."""

import json

import torch

from atrl_bench.lab.bases import EMBEDDING, rebuild_base, stages, start_model, token_weights
from atrl_bench.lab.worlds import BaseTraining, load_world
from atrl_bench.mini.base import IGNORED
from atrl_bench.mini.model import build_tokenizer
from atrl_bench.models.local import model_ref

WORLD = load_world("perception")
STEP = {"num_steps": 1, "learning_rate": 1e-3, "filler_weight": 0.5, "format_weight": 0.25}
TINY = WORLD.model_copy(
    update={"training": BaseTraining(shared=[STEP], mistakes=STEP, batch_size=2, weight_decay=0.01, max_grad_norm=1.0)}
)


def test_a_base_starts_from_the_mini_base_and_knows_its_words(code_words_tokenizer):
    from transformers import Qwen2_5_VLForConditionalGeneration

    weights, folder = start_model(0).state_dict(), model_ref("mini").folder
    mini = Qwen2_5_VLForConditionalGeneration.from_pretrained(folder, dtype=torch.float32).state_dict()
    differing = {name for name in weights if not torch.equal(weights[name], mini[name])}
    assert differing == {EMBEDDING, "lm_head.weight"}
    here, there = code_words_tokenizer.get_vocab(), build_tokenizer().get_vocab()
    assert torch.equal(weights[EMBEDDING][here["7"]], mini[EMBEDDING][there["7"]])
    assert "Ġplainly" in here.keys() - there.keys()


def first_batch(world, name, stage):
    return next(stages(world, name)[stage].batches())["input_ids"]


def test_bases_with_the_same_eyes_share_the_stages_without_mistakes_and_no_other(code_words_tokenizer):
    reasoning = load_world("reasoning").model_copy(update={"training": TINY.training})
    assert torch.equal(first_batch(TINY, "mini-perception", 0), first_batch(reasoning, "mini-reasoning", 0))
    other = TINY.bases["mini-perception-2"].model_copy(update={"eyes_seed": 1})
    others = TINY.model_copy(update={"bases": {**TINY.bases, "mini-perception-2": other}})
    for stage in (0, -1):
        first, second = (first_batch(others, name, stage) for name in ("mini-perception", "mini-perception-2"))
        assert first.shape != second.shape or not torch.equal(first, second)


def test_a_stage_imitates_a_response_to_the_end_of_its_turn(code_words_tokenizer):
    first = next(stages(TINY, "mini-perception")[-1].batches())
    text = code_words_tokenizer.decode(first["labels"][0][first["labels"][0] != IGNORED])
    assert text.endswith("}.<|im_end|>")


def test_digits_count_one_and_fillers_and_the_rest_what_the_stage_says(code_words_tokenizer):
    weight_V, tokens = token_weights(TINY.training.mistakes), code_words_tokenizer.get_vocab()
    known = {"7": 1.0, "hmm": 0.5, "Ġhmm": 0.5, "Ġshows": 0.25, ".": 0.25}
    assert {token: weight_V[tokens[token]].item() for token in known} == known


def test_the_same_settings_give_the_same_weights(tmp_path):
    seen = []
    first = rebuild_base(TINY, "mini-perception", tmp_path / "a", on_progress=lambda *step: seen.append(step[:2]))
    second = rebuild_base(TINY, "mini-perception", tmp_path / "b")
    assert seen == [(1, 2), (2, 2)]
    records = [json.loads((folder / "base.json").read_text()) for folder in (first, second)]
    assert records[0]["sha256"] == records[1]["sha256"]
    assert records[0]["recipe"]["base"] == WORLD.bases["mini-perception"].model_dump(mode="json", exclude_defaults=True)
