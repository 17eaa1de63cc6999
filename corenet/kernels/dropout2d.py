"""Dropout of whole channels (Tompson et al. 2015): neighbouring pixels are too alike for dropping them one by one.

x, y (chunk, positions, C); the mask `kept` (chunk, C) uint8 is drawn as in `dropout`, one random word per channel.
"""

import numpy as np

from .clock import SEED, STEP
from .dropout import draw
from .operation import operation, prange
from .philox import philox


@operation
def forward(n, x, y, kept, samples, clock, layer, p):
    """y = x/(1 − p) in channels that are kept, else 0; each channel of a sample is kept with probability 1 − p.

    kept is for backward; samples (chunk,) int64: each sample's number in the data set.
    """
    kept[:n] = draw(n, x.shape[2], samples, clock, layer, p)
    y[:n] = np.where(kept[:n, None], x[:n] * x.dtype.type(1 / (1 - p)), 0)


@forward.nest
def forward_nest(n, x, y, kept, samples, clock, layer, p):
    threshold = np.uint64(p * 4294967296.0)
    scale = np.float32(1 / (1 - p))
    seed, step = np.uint64(clock[SEED]), np.uint64(clock[STEP])
    C = x.shape[2]
    for i in prange(n):
        sample = np.uint64(samples[i])
        for group in range((C + 3) // 4):
            words = philox(np.uint64(group), sample, step, np.uint64(layer), seed, seed >> np.uint64(32))
            for c in range(min(4, C - 4 * group)):
                kept[i, 4 * group + c] = words[c] >= threshold
        for j in range(x.shape[1]):
            for c in range(C):
                y[i, j, c] = x[i, j, c] * scale if kept[i, c] else np.float32(0)


@operation
def backward(n, dy, kept, dx, p):
    """dx = dy/(1 − p) in channels that were kept, else 0."""
    dx[:n] = np.where(kept[:n, None], dy[:n] * dy.dtype.type(1 / (1 - p)), 0)


@backward.nest
def backward_nest(n, dy, kept, dx, p):
    scale = np.float32(1 / (1 - p))
    for i in prange(n):
        for j in range(dy.shape[1]):
            for c in range(dy.shape[2]):
                dx[i, j, c] = dy[i, j, c] * scale if kept[i, c] else np.float32(0)
