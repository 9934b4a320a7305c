"""verl's synchronous trainer, which multiplies the advantage of each token by its credit.

The configuration chooses it with `token_credit`; without that it is verl's trainer and nothing more. It takes the name
`sync` in verl's registry: verl compares that name in several places, and under another one it would silently sample
from the buffer of its asynchronous trainers.
"""

from __future__ import annotations

from typing import Any

import torch
import transfer_queue
from tensordict import TensorDict
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1.trainer_base import TRAINER_REGISTRY
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync
from verl.workers.utils.padding import response_from_nested

from atrl_bench.engines.verl.engine import REQUEST
from atrl_bench.engines.verl.settings import KEY, VerlCredit, refuse_what_cannot_be_credited


class TokenCreditTrainer(PPOTrainerSync):
    """verl's trainer, with the credit that its configuration chooses."""

    def __init__(self, config: Any) -> None:
        self._credit = VerlCredit.of(config)
        if self._credit is not None:
            refuse_what_cannot_be_credited(config)
        super().__init__(config)

    def _compute_old_log_prob(self, batch: KVBatchMeta, metrics: dict[str, Any]) -> KVBatchMeta:
        """Compute verl's old log-probabilities in a pass that is asked for credit, which stays in the batch."""
        if self._credit is None:
            return super()._compute_old_log_prob(batch, metrics)
        batch.extra_info[REQUEST] = self._credit.document()
        scored = super()._compute_old_log_prob(batch, metrics)
        for meta in (batch, scored):  # no later pass is recorded
            (meta.extra_info or {}).pop(REQUEST, None)
        return scored

    def _compute_advantage(self, batch: KVBatchMeta, metrics: dict[str, Any]) -> KVBatchMeta:
        batch = super()._compute_advantage(batch, metrics)
        if self._credit is None:
            return batch
        of_batch = {"keys": batch.keys, "partition_id": batch.partition_id}
        data = transfer_queue.kv_batch_get(**of_batch, select_fields=["advantages", "response_mask", KEY])
        if KEY not in set(data.keys()):
            raise RuntimeError("No token credit: atrl-bench is not installed in the environment of verl's workers.")
        credit = response_from_nested(data[KEY], data["response_mask"])
        metrics.update(_figures(credit.values(), data["response_mask"].values()))
        fields = TensorDict({"advantages": credited(data["advantages"], credit)}, batch_size=len(batch))
        return transfer_queue.kv_batch_put(**of_batch, fields=fields)


def credited(advantages: Any, credit: Any) -> Any:
    products = [of_tokens * own for of_tokens, own in zip(advantages.unbind(), credit.unbind(), strict=True)]
    return torch.nested.as_nested_tensor(products, layout=torch.jagged)


def _figures(credit_N: Any, mask_N: Any) -> dict[str, float]:
    own = credit_N[mask_N.bool()].float()
    if not len(own):
        return {}
    return {
        "credit/mean": own.mean().item(),
        "credit/std": own.std(correction=0).item(),
        "credit/max": own.max().item(),
        "credit/min": own.min().item(),
    }


TRAINER_REGISTRY["sync"] = TokenCreditTrainer
