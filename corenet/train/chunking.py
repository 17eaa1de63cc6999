"""How many samples go through the net together.

A chunk is small enough for its activations to stay in the cache, large enough to fill the kernels' tiles, and a batch
should have several, so that workers can share it. The choice depends on the net and the batch size only, never on the
machine or the workers: it decides the order of summation, and so the bits.
"""

from __future__ import annotations

from typing import Any

CHUNKS_PER_BATCH = 8  # enough for eight workers, or for slices that follow unequal speeds
LARGEST = 32  # samples; beyond it throughput no longer grows
LEAST_FOR_STATISTICS = 16  # samples: what batch normalisation needs to estimate a chunk's mean and variance
PREDICTION_CHUNK = 32


def choose_chunk(net: dict[str, Any], batch_size: int) -> int:
    """The number of samples of a chunk, for a net as `nn.describe` gives it."""
    chunk = -(-batch_size // CHUNKS_PER_BATCH)
    if _measures_chunks(net):
        chunk = max(chunk, LEAST_FOR_STATISTICS)
    return max(1, min(chunk, LARGEST, batch_size))


def _measures_chunks(description: Any) -> bool:
    """Whether a layer somewhere in the net needs the chunk's statistics: a BatchNorm1d, 2d … without sync."""
    if isinstance(description, dict):
        ghost = str(description.get("type")).startswith("BatchNorm") and not description.get("sync")
        return ghost or any(map(_measures_chunks, description.values()))
    return isinstance(description, list) and any(map(_measures_chunks, description))
