"""The bias: one number per channel, added at every position. Arrays are (chunk, positions, K)."""

import numpy as np

from .operation import operation, prange


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
    image_sum = np.empty_like(db)
    for i in range(n):  # summed image by image: shorter chains of roundings
        image_sum[:] = 0
        for p in range(dy.shape[1]):
            for k in range(dy.shape[2]):
                image_sum[k] += dy[i, p, k]
        for k in range(db.shape[0]):
            db[k] += image_sum[k]
