"""How many samples go through the net together.

A chunk is small enough for its activations to stay in the cache, large enough to fill the kernels' tiles, and a batch
should have several, so that workers can share it. The choice depends on the net and the batch size only, never on the
machine or the workers: it decides the order of summation, and so the bits.
"""

from __future__ import annotations

from ..engine import Plan

CHUNKS_PER_BATCH = 8  # enough for eight workers, or for slices that follow unequal speeds
LEAST = 8  # samples, which are rows of the tile: with fewer, weights are read too often
FEWEST = 4  # chunks of a batch, however few samples they have, so that four workers can share it
LARGEST = 32  # samples; beyond it throughput no longer grows
LEAST_FOR_STATISTICS = 16  # samples: what batch normalisation needs to estimate a chunk's mean and variance
PREDICTION_CHUNK = 32


def choose_chunk(plan: Plan, batch_size: int) -> int:
    """The number of samples of a chunk, for a net whose training is planned for chunks of any size."""
    chunk = max(-(-batch_size // CHUNKS_PER_BATCH), min(LEAST, -(-batch_size // FEWEST)))
    if plan.normalises_by_chunk:
        chunk = max(chunk, LEAST_FOR_STATISTICS)
    return max(1, min(chunk, LARGEST, batch_size))
