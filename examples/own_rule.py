"""A credit rule of your own is a function; here it is compared with two of ours on the same attention.

    python examples/own_rule.py

The same function goes into a trainer: `with_credit(GRPOTrainer, rule=last_look)`. In a package it gets a name that
recipes and tables know: docs/credit_rules.md.
"""

import numpy as np
import torch

from atrl_bench.credit import AttentionRows, connectivity_density, credit_of_weights, token_credit


def last_look(attention, config, seed):
    """Returns credit for every token up to the last one that looks at the image more than the average token does."""
    connectivity_T = connectivity_density(attention, config)
    (looks,) = np.nonzero(connectivity_T > connectivity_T.mean())
    weight_T = (np.arange(len(connectivity_T)) <= looks.max(initial=0)).astype(float)
    return credit_of_weights(weight_T, connectivity_T, config, last_look=float(looks.max(initial=0)))


def main() -> None:
    # Twelve tokens over twelve prompt columns, the last six of them image; tokens 2 and 5 look at it.
    rows_TS = torch.full((12, 12), 1 / 12)
    rows_TS[[2, 5], :6], rows_TS[[2, 5], 6:] = 0.02, 0.88 / 6
    attention = AttentionRows(rows_TS, torch.arange(12) >= 6)
    for rule in ("uniform", "raw_attention", last_look):
        credit = token_credit(attention, rule)
        name = rule if isinstance(rule, str) else rule.__name__
        print(f"{name:14}", " ".join(f"{weight:4.2f}" for weight in credit.credit_T))


if __name__ == "__main__":
    main()
