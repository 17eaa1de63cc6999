"""Dropout (Srivastava et al. 2014), with masks keyed by (seed, step, sample, layer) instead of drawn from a stream."""

import numpy as np

from .clock import SEED, STEP
from .operation import operation, prange
from .philox import philox, philox_block

BLOCK = 64  # counters whose words are made together


def draw(n, features, samples, clock, layer, p):
    """Which of (n, features) elements are kept: a random word for each, four of them from one counter."""
    groups = np.arange((features + 3) // 4, dtype=np.uint64)[None, :]
    sample = samples[:n, None].astype(np.uint64)
    seed, step = clock[SEED].astype(np.uint64), clock[STEP].astype(np.uint64)
    words = philox(groups, sample, step, np.uint64(layer), seed, seed >> np.uint64(32))
    random = np.stack(words, axis=-1).reshape(n, -1)[:, :features]
    return random >= np.uint64(p * 4294967296.0)


@operation
def forward(n, x, y, kept, samples, clock, layer, p):
    """y = x/(1 − p) where kept, else 0; each element of x (chunk, features) is kept with probability 1 − p.

    kept (chunk, features) uint8 is for backward; samples (chunk,) int64: each sample's number in the data set.
    """
    kept[:n] = draw(n, x.shape[1], samples, clock, layer, p)
    y[:n] = np.where(kept[:n], x[:n] * x.dtype.type(1 / (1 - p)), 0)


@forward.nest
def forward_nest(n, x, y, kept, samples, clock, layer, p):
    threshold = np.uint64(p * 4294967296.0)
    scale = np.float32(1 / (1 - p))
    seed, step = np.uint64(clock[SEED]), np.uint64(clock[STEP])
    features = x.shape[1]
    for i in prange(n):
        words = np.empty((4, BLOCK), np.uint64)
        four = np.empty(BLOCK, np.uint32)  # what the four words of a counter say, a byte each, the first in the lowest
        keep = four.view(np.uint8)
        for first in range(0, features, 4 * BLOCK):  # simple loops, which become vectors
            counter, sample = np.uint64(first // 4), np.uint64(samples[i])
            philox_block(counter, sample, step, np.uint64(layer), seed, seed >> np.uint64(32), words)
            a, b, c, d = words[0], words[1], words[2], words[3]
            for g in range(BLOCK):
                low = np.uint64(a[g] >= threshold) | np.uint64(b[g] >= threshold) << np.uint64(8)
                high = np.uint64(c[g] >= threshold) | np.uint64(d[g] >= threshold) << np.uint64(8)
                four[g] = np.uint32(low | high << np.uint64(16))
            row, out = x[i, first : first + 4 * BLOCK], y[i, first : first + 4 * BLOCK]
            mask = kept[i, first : first + 4 * BLOCK]
            for j in range(row.shape[0]):
                mask[j] = keep[j]
                out[j] = row[j] * scale if keep[j] else np.float32(0)


@operation
def backward(n, dy, kept, dx, p):
    """dx = dy/(1 − p) where kept, else 0."""
    dx[:n] = np.where(kept[:n], dy[:n] * dy.dtype.type(1 / (1 - p)), 0)


@backward.nest
def backward_nest(n, dy, kept, dx, p):
    scale = np.float32(1 / (1 - p))
    for i in prange(n):
        for j in range(dy.shape[1]):
            dx[i, j] = dy[i, j] * scale if kept[i, j] else np.float32(0)
