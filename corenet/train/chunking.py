"""How many samples go through the net together.

A chunk is small enough for its activations to stay in the cache, large enough to fill the kernels' tiles, and a batch
should have several, so that workers can share it. The choice depends on the net and the batch size only, never on the
machine or the workers: it decides the order of summation, and so the bits.
"""

from __future__ import annotations

from typing import Any

CHUNKS_PER_BATCH = 8  # enough for eight workers, or for slices that follow unequal speeds
LARGEST = 32  # samples; beyond it throughput no longer grows
LEAST_FOR_STATISTICS = 16  # samples: what batch normalisation needs to estimate a mean and a variance
PREDICTION_CHUNK = 32


def choose_chunk(net: dict[str, Any], batch_size: int) -> int:
    """The number of samples of a chunk, for a net as `nn.describe` gives it."""
    chunk = -(-batch_size // CHUNKS_PER_BATCH)
    if _has(net, "BatchNorm"):
        chunk = max(chunk, LEAST_FOR_STATISTICS)
    return max(1, min(chunk, LARGEST, batch_size))


def _has(description: Any, family: str) -> bool:
    """Whether a layer somewhere in the net has a name that begins so: BatchNorm1d, BatchNorm2d …"""
    if isinstance(description, dict):
        named = str(description.get("type")).startswith(family)
        return named or any(_has(value, family) for value in description.values())
    return isinstance(description, list) and any(_has(part, family) for part in description)
