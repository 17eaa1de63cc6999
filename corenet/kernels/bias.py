"""The bias: one number per channel, added at every position. Arrays are (chunk, positions, K)."""

import numpy as np

from .operation import operation, prange
from .rows import folded, row_width


@operation
def add(n, b, y):
    """y += b (K,), in place."""
    y[:n] += b


@add.nest
def add_nest(n, b, y):
    for i in prange(n):
        for p in range(y.shape[1]):
            for k in range(y.shape[2]):
                y[i, p, k] += b[k]


@operation
def backward(n, dy, db):
    """db (K,) = the sum of dy over samples and positions."""
    db[:] = dy[:n].sum(axis=(0, 1))


@backward.nest
def backward_nest(n, dy, db):
    db[:] = 0
    size, width = dy.shape[1] * dy.shape[2], row_width(dy.shape[2], dy.shape[1])
    flat, image_sum, sums = dy.reshape(dy.shape[0], size), np.empty_like(db), np.empty(width, db.dtype)
    for i in range(n):  # summed image by image: shorter chains of roundings
        for j in range(width):
            sums[j] = 0
        for start in range(0, size, width):
            row = flat[i, start : start + width]
            for j in range(row.shape[0]):
                sums[j] += row[j]
        folded(sums, image_sum)
        for k in range(db.shape[0]):
            db[k] += image_sum[k]
