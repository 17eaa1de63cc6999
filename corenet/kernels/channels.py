"""Channels in and out of an array that has more of them, as where branches join; arrays are (chunk, positions, C)."""

from .operation import operation, prange


@operation
def put(n, x, y, first):
    """y[…, first : first + C] = x (chunk, positions, C); the other channels of y stay."""
    y[:n, :, first : first + x.shape[2]] = x[:n]


@put.nest
def put_nest(n, x, y, first):
    for i in prange(n):
        for j in range(x.shape[1]):
            for c in range(x.shape[2]):
                y[i, j, first + c] = x[i, j, c]


@operation
def take(n, x, y, first):
    """y (chunk, positions, C) = x[…, first : first + C]: the gradient of `put`."""
    y[:n] = x[:n, :, first : first + y.shape[2]]


@take.nest
def take_nest(n, x, y, first):
    for i in prange(n):
        for j in range(y.shape[1]):
            for c in range(y.shape[2]):
                y[i, j, c] = x[i, j, first + c]
