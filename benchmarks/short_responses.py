"""The credit of many short responses, together and one by one.

    python benchmarks/short_responses.py [--responses 128] [--tokens 30] [--repeats 5]

As many tokens as in a mini training step: what counts is the number of calls, not the arithmetic. One thread; medians
of interleaved runs.
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch

from atrl_bench.credit import AttentionRows, token_credit, token_credits


def response(num_tokens: int, seed: int, num_prompt: int = 60, num_topics: int = 4) -> AttentionRows:
    generator = torch.Generator().manual_seed(seed)
    num_tokens += seed % 13 - 6
    num_columns = num_prompt + num_tokens
    topic_T = torch.randint(num_topics, (num_tokens,), generator=generator)
    score_TS = 1.5 * torch.randn(num_topics, num_columns, generator=generator)[topic_T]
    score_TS += 1.2 * torch.randn(num_tokens, num_columns, generator=generator)
    after_TS = torch.arange(num_columns) > num_prompt + torch.arange(num_tokens)[:, None]
    column_S = torch.arange(num_columns)
    visual_S = (column_S >= 4) & (column_S < 20 + seed % 35)
    return AttentionRows(score_TS.masked_fill(after_TS, -torch.inf).softmax(1), visual_S)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--responses", type=int, default=128)
    parser.add_argument("--tokens", type=int, default=30)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    seconds: dict[str, list[float]] = {"together": [], "one by one": []}
    for _ in range(arguments.repeats + 1):  # the first run of each warms up
        for name, took in seconds.items():
            # New each time: a response keeps its mean row.
            attentions = [response(arguments.tokens, seed) for seed in range(arguments.responses)]
            started = time.perf_counter()
            if name == "together":
                token_credits(attentions, seeds=range(arguments.responses))
            else:
                for seed, attention in enumerate(attentions):
                    token_credit(attention, seed=seed)
            took.append(time.perf_counter() - started)
    for name, took in seconds.items():
        print(f"{name:10}  {1e3 * statistics.median(took[1:]) / arguments.responses:.3f} ms a response")


if __name__ == "__main__":
    main()
