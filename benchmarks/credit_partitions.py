"""What the mean over several METIS partitions costs and gives; peer: the credit of one partition.

    python benchmarks/credit_partitions.py [--tokens 128 512 2048] [--partitions 1 2 4 8] [--repeats 5]

Rows as in graph_to_credit.py. Processor time of one thread from attention rows to credit, medians of interleaved runs,
and the correlation of the credit with itself under another seed, mean over all pairs of six.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections import defaultdict

import torch
from graph_to_credit import sink_heavy

from atrl_bench.credit import CreditConfig, token_credit

NUM_SEEDS = 6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, nargs="+", default=[128, 512, 2048])
    parser.add_argument("--partitions", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--prompt", type=int, default=1024)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{'T':>5} {'partitions':>10} {'ms':>8} {'ratio':>6} {'again':>6}")
    for num_tokens in arguments.tokens:
        attention = sink_heavy(num_tokens, arguments.prompt)
        configs = {count: CreditConfig(partitions=count) for count in arguments.partitions}
        times = defaultdict(list)
        for repeat in range(arguments.repeats):
            for count, config in configs.items():
                started = time.process_time()
                token_credit(attention, "atrl", config, repeat + 1)
                times[count].append(1000 * (time.process_time() - started))
        for count, config in configs.items():
            credits = [token_credit(attention, "atrl", config, seed).credit_T for seed in range(1, NUM_SEEDS + 1)]
            agreement = torch.corrcoef(torch.stack(credits))[~torch.eye(NUM_SEEDS, dtype=torch.bool)].mean()
            cost, single = statistics.median(times[count]), statistics.median(times[arguments.partitions[0]])
            print(f"{num_tokens:>5} {count:>10} {cost:>8.1f} {cost / single:>6.2f} {agreement:>6.2f}")


if __name__ == "__main__":
    main()
