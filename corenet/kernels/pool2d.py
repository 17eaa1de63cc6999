"""Pooling over windows of an image: maximum and average, PyTorch's conventions.

x (chunk, H, W, C), y (chunk, P, Q, C); window (R, S), stride (sh, sw), padding (ph, pw). Output (p, q) covers the input
rows p·sh−ph … +R and columns q·sw−pw … +S. Positions in the padding never win a maximum, and count as zeros (and in the
divisor R·S) in an average. `which` (chunk, P, Q, C) uint8 keeps the winner's place r·S+s; of equals the first wins, and
a NaN wins over everything.
"""

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from .operation import operation, prange


def _windows(x, window, stride, padding, fill):
    """Windows of x as (n, P, Q, C, R·S)."""
    ph, pw = padding
    x = np.pad(x, ((0, 0), (ph, ph), (pw, pw), (0, 0)), constant_values=fill)
    view = sliding_window_view(x, window, axis=(1, 2))[:, :: stride[0], :: stride[1]]
    return view.reshape(*view.shape[:4], -1)


def _spread(n, values_of, dx, window, stride, padding, P, Q):
    """Add values_of(r, s) (n, P, Q, C) to the pixels of dx under element (r, s) of every window."""
    H, W = dx.shape[1:3]
    ph, pw = padding
    image = np.zeros((n, H + 2 * ph, W + 2 * pw, dx.shape[3]), dx.dtype)
    for r in range(window[0]):
        for s in range(window[1]):
            image[:, r : r + P * stride[0] : stride[0], s : s + Q * stride[1] : stride[1]] += values_of(r, s)
    dx[:n] = image[:, ph : ph + H, pw : pw + W]


@operation
def max_forward(n, x, y, which, window, stride, padding):
    """y = the largest value of each window, which = its place in the window."""
    values = _windows(x[:n], window, stride, padding, -np.inf)
    which[:n] = values.argmax(axis=-1)
    y[:n] = np.take_along_axis(values, which[:n, ..., None].astype(np.intp), axis=-1)[..., 0]


@max_forward.nest
def max_forward_nest(n, x, y, which, window, stride, padding):
    H, W, C = x.shape[1], x.shape[2], x.shape[3]
    R, S = window
    for i in prange(n):
        for p in range(y.shape[1]):
            for q in range(y.shape[2]):
                h0, v0 = p * stride[0] - padding[0], q * stride[1] - padding[1]
                r0, s0 = max(0, -h0), max(0, -v0)
                for c in range(C):
                    y[i, p, q, c] = x[i, h0 + r0, v0 + s0, c]
                    which[i, p, q, c] = r0 * S + s0
                for r in range(r0, min(R, H - h0)):
                    for s in range(s0, min(S, W - v0)):
                        place = np.uint8(r * S + s)
                        for c in range(C):
                            value, best = x[i, h0 + r, v0 + s, c], y[i, p, q, c]
                            wins = (value > best) | ((value != value) & (best == best))
                            y[i, p, q, c] = value if wins else best
                            which[i, p, q, c] = place if wins else which[i, p, q, c]


@operation
def max_backward(n, dy, which, dx, window, stride, padding):
    """dx = the sum of dy over the windows that each pixel has won."""
    S = window[1]
    P, Q = dy.shape[1:3]
    _spread(n, lambda r, s: np.where(which[:n] == r * S + s, dy[:n], 0), dx, window, stride, padding, P, Q)


@max_backward.nest
def max_backward_nest(n, dy, which, dx, window, stride, padding):
    H, W, C = dx.shape[1], dx.shape[2], dx.shape[3]
    R, S = window
    for i in prange(n):
        for h in range(H):
            for v in range(W):
                for c in range(C):
                    dx[i, h, v, c] = 0
        for p in range(dy.shape[1]):
            for q in range(dy.shape[2]):
                h0, v0 = p * stride[0] - padding[0], q * stride[1] - padding[1]
                for r in range(max(0, -h0), min(R, H - h0)):
                    for s in range(max(0, -v0), min(S, W - v0)):
                        place = np.uint8(r * S + s)
                        for c in range(C):
                            won = which[i, p, q, c] == place
                            dx[i, h0 + r, v0 + s, c] += dy[i, p, q, c] if won else np.float32(0)


@operation
def average_forward(n, x, y, window, stride, padding):
    """y = the mean of each window of R·S places, those in the padding counting as zeros."""
    y[:n] = _windows(x[:n], window, stride, padding, 0).mean(axis=-1)


@average_forward.nest
def average_forward_nest(n, x, y, window, stride, padding):
    H, W, C = x.shape[1], x.shape[2], x.shape[3]
    R, S = window
    scale = np.float32(1) / np.float32(R * S)
    for i in prange(n):
        for p in range(y.shape[1]):
            for q in range(y.shape[2]):
                h0, v0 = p * stride[0] - padding[0], q * stride[1] - padding[1]
                for c in range(C):
                    y[i, p, q, c] = 0
                for r in range(max(0, -h0), min(R, H - h0)):
                    for s in range(max(0, -v0), min(S, W - v0)):
                        for c in range(C):
                            y[i, p, q, c] += x[i, h0 + r, v0 + s, c]
                for c in range(C):
                    y[i, p, q, c] *= scale


@operation
def average_backward(n, dy, dx, window, stride, padding):
    """dx = the sum of dy/(R·S) over the windows that cover each pixel."""
    P, Q = dy.shape[1:3]
    share = dy[:n] / (window[0] * window[1])
    _spread(n, lambda r, s: share, dx, window, stride, padding, P, Q)


@average_backward.nest
def average_backward_nest(n, dy, dx, window, stride, padding):
    H, W, C = dx.shape[1], dx.shape[2], dx.shape[3]
    R, S = window
    scale = np.float32(1) / np.float32(R * S)
    for i in prange(n):
        for h in range(H):
            for v in range(W):
                for c in range(C):
                    dx[i, h, v, c] = 0
        for p in range(dy.shape[1]):
            for q in range(dy.shape[2]):
                h0, v0 = p * stride[0] - padding[0], q * stride[1] - padding[1]
                for r in range(max(0, -h0), min(R, H - h0)):
                    for s in range(max(0, -v0), min(S, W - v0)):
                        for c in range(C):
                            dx[i, h0 + r, v0 + s, c] += dy[i, p, q, c] * scale
