"""The largest value of each channel of an image. x (chunk, positions, C), y (chunk, C).

`which` (chunk, C) int32 keeps the winner's position; as in pooling over windows, of equals the first wins, and a NaN
wins over everything.
"""

import numpy as np

from .operation import operation, prange


@operation
def forward(n, x, y, which):
    """y = the largest value of each channel, which = its position."""
    which[:n] = x[:n].argmax(axis=1)
    y[:n] = np.take_along_axis(x[:n], which[:n, None].astype(np.intp), axis=1)[:, 0]


@forward.nest
def forward_nest(n, x, y, which):
    for i in prange(n):
        for c in range(x.shape[2]):
            y[i, c] = x[i, 0, c]
            which[i, c] = 0
        for p in range(1, x.shape[1]):
            place = np.int32(p)
            for c in range(x.shape[2]):
                value, best = x[i, p, c], y[i, c]
                wins = (value > best) | ((value != value) & (best == best))
                y[i, c] = value if wins else best
                which[i, c] = place if wins else which[i, c]


@operation
def backward(n, dy, which, dx):
    """dx = dy at the winner, else 0."""
    positions = np.arange(dx.shape[1])[:, None]
    dx[:n] = np.where(which[:n, None] == positions, dy[:n, None], 0)


@backward.nest
def backward_nest(n, dy, which, dx):
    for i in prange(n):
        for p in range(dx.shape[1]):
            for c in range(dx.shape[2]):
                dx[i, p, c] = dy[i, c] if which[i, c] == p else np.float32(0)
