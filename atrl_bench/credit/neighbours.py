"""Which tokens are likely to be each other's most similar, by a random projection of their rows.

Shapes: T tokens, S columns, D numbers of a projection, B tokens of a block, L neighbours.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator

import numpy as np
import torch
from torch import Tensor

# The best neighbours of a token are looked for among so many: the best of each part, at the likeliest places.
_CANDIDATES = 96
# numpy's partition has no branches to guess up to about so many numbers: a quarter of the time of torch's topk.
_PARTITIONED = 256


def random_signs(num_columns: int, size: int) -> Tensor:
    """Returns the projection: for each column and each of `size` numbers 1 or -1.

    It is the same for every response: credit must not depend on what was computed before it.
    """
    return _signs_of(math.ceil(num_columns / 4096), size)[:num_columns]


@functools.lru_cache(maxsize=4)
def _signs_of(num_thousands: int, size: int) -> Tensor:
    # A longer draw from the same seed begins with the shorter one.
    generator = torch.Generator().manual_seed(0)
    return torch.randint(2, (4096 * num_thousands, size), generator=generator, dtype=torch.float32).mul_(2).sub_(1)


def best_columns(value_BN: Tensor, limit: int) -> tuple[Tensor, Tensor]:
    """Returns the `limit` highest numbers of each row, falling, and where they are. Negative ones come in any order."""
    limit = min(limit, value_BN.shape[1])
    if value_BN.device.type != "cpu" or value_BN.shape[1] > _PARTITIONED:
        return value_BN.topk(limit, dim=1)
    # Floats that are not negative are ordered as their bits are; behind them stands the column.
    bits_BN = value_BN.contiguous().view(torch.int32).numpy().astype(np.int64)
    key_BN = (bits_BN << 32) + np.arange(value_BN.shape[1])
    key_BN.partition(-limit, axis=1)
    column_BL = torch.from_numpy(np.sort(key_BN[:, -limit:], axis=1)[:, ::-1] & 0xFFFFFFFF)
    return value_BN.gather(1, column_BL), column_BL


def most_similar(
    unit_TD: Tensor, limit: int, blocks: Iterable[slice], hide: Callable[[Tensor, slice], object]
) -> Iterator[tuple[slice, Tensor, Tensor]]:
    """Yields for each block of tokens the `limit` highest cosines of each, and with whom; -1 where there is nobody.

    `hide(cosine_BT, block)` sets those to -1 that do not count. The result is the same on every device, but for
    rounding, and has no size that depends on a value: a device need not wait.
    """
    num_tokens, blocks = len(unit_TD), list(blocks)
    num_parts = max(1, _CANDIDATES // limit) if num_tokens >= _CANDIDATES else 1
    part_size = math.ceil(num_tokens / num_parts)
    others_DT = unit_TD.T.contiguous()
    at_once = max((block.stop - block.start for block in blocks), default=0)
    # The columns behind the last token are never written again: they are no neighbours.
    similarity_BT = unit_TD.new_full((at_once, num_parts * part_size), -1.0)
    first_P = torch.arange(num_parts, device=unit_TD.device) * part_size
    for block in blocks:
        block_BT = similarity_BT[: block.stop - block.start]
        torch.mm(unit_TD[block], others_DT, out=block_BT[:, :num_tokens])
        hide(block_BT, block)
        # The `limit` best columns lie in the `limit` places where the best of all parts are highest.
        best_BQ = block_BT.view(len(block_BT), num_parts, part_size).amax(1)
        place_BL = best_columns(best_BQ, limit)[1]
        column_BC = (place_BL[:, :, None] + first_P).flatten(1)
        best_BL, nth_BL = best_columns(block_BT.gather(1, column_BC), min(limit, num_tokens - 1))
        yield block, best_BL, column_BC.gather(1, nth_BL)
