"""How many responses are sampled at once, and how."""

from types import SimpleNamespace

import torch

from atrl_bench.models.decoding import SampledTokens
from atrl_bench.models.prompt import Sampling
from atrl_bench.profiles import load_profile
from atrl_bench.training import group_sampling
from atrl_bench.training.group_sampling import PromptBatch, sample_groups, sequences_at_once


def config(**text):
    return SimpleNamespace(get_text_config=lambda: SimpleNamespace(**text))


def test_as_many_sequences_are_sampled_at_once_as_have_their_keys_and_values_in_15_gb():
    # The 7B model: 28 layers, keys and values, 4 heads of 3584 / 28 = 128 numbers of 2 bytes: 57,344 bytes a position.
    qwen_7b = config(num_hidden_layers=28, num_attention_heads=28, num_key_value_heads=4, hidden_size=3584)
    assert sequences_at_once(qwen_7b, 4096 + 2048, torch.bfloat16) == int(15e9 / (57_344 * 6144)) == 42
    assert sequences_at_once(qwen_7b, 4096 + 2048, torch.float32) == 21
    # 64 layers of 8 heads, whose size the config tells: 262,144 bytes a position.
    qwen_32b = config(
        num_hidden_layers=64, num_attention_heads=40, num_key_value_heads=8, hidden_size=5120, head_dim=128
    )
    assert sequences_at_once(qwen_32b, 4096 + 2048, torch.bfloat16) == int(15e9 / (262_144 * 6144)) == 9


def test_a_sequence_that_fills_more_than_that_is_sampled_alone():
    one_head = config(num_hidden_layers=1000, num_attention_heads=1, hidden_size=1000)
    assert sequences_at_once(one_head, 10_000, torch.float32) == 1


def test_without_grouped_queries_every_head_has_its_own_keys_and_values():
    # 1 layer, keys and values, 10 heads of 10 numbers of 2 bytes: 400 bytes a position, a million of them.
    all_heads = config(num_hidden_layers=1, num_attention_heads=10, num_key_value_heads=None, hidden_size=100)
    assert sequences_at_once(all_heads, 1_000_000, torch.bfloat16) == 37


def test_responses_are_drawn_as_the_profile_says_under_the_seed_of_the_run(monkeypatch):
    drawn = []

    def sample(_model, _inputs, draws, _eos_ids, sampling, **_):
        drawn.append(sampling)
        return [SampledTokens((7,), truncated=True) for _ in draws]

    monkeypatch.setattr(group_sampling, "sample", sample)
    text = config(num_hidden_layers=1, num_attention_heads=1, hidden_size=8)
    model = SimpleNamespace(config=text, device="cpu")
    sizes = load_profile("mini").training.model_copy(update={"temperature": 0.7, "top_p": 0.9})
    prompts = PromptBatch(["a"], [[1, 2]], {}, [], [])
    sample_groups(model, prompts, sizes, group_size=2, run_seed=5, pad_id=0, eos_ids=[3])
    assert drawn == [Sampling(sizes.max_response_tokens, temperature=0.7, top_p=0.9, run_seed=5)]
