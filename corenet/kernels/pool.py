"""Pooling over windows of an image: maximum and average, in three dimensions, PyTorch's conventions.

x (chunk, D, H, W, C), y (chunk, O, P, Q, C); window, stride and padding are triples for (depth, height, width). Output
(o, p, q) covers the input from place·stride − padding on, window long; what of it lies outside the image never wins a
maximum, and counts as zeros in an average. `which` (chunk, O, P, Q, C) keeps the winner's place in the window; of
equals the first wins, and a NaN wins over everything. An average divides by the window's size, cut at the end of the
padding, or (count_padding false) by the number of pixels inside the image.
"""

import numpy as np

from .max_tile import max_tile
from .operation import device, operation, prange
from .tile import LANES


def _under(place, step, output, x_size, padding):
    """For one window element: slices of the outputs whose pixel there lies inside the image, and of these pixels."""
    outputs, pixels = [], []
    for f, s, count, size, pad in zip(place, step, output, x_size, padding, strict=True):
        first = max(0, -(-(pad - f) // s))
        last = min(count, (size - 1 + pad - f) // s + 1)
        outputs.append(slice(first, max(first, last)))
        begin = first * s + f - pad
        pixels.append(slice(begin, begin + max(0, last - first) * s, s))
    return (slice(None), *outputs), (slice(None), *pixels)


@device
def is_halving(window, stride, padding):
    """Whether these are the 2×2 windows, side by side, of most nets: they have loops of their own."""
    sides = window[0] == stride[0] == 1 and window[1] == stride[1] == window[2] == stride[2] == 2
    return sides and padding[0] == padding[1] == padding[2] == 0


@operation
def max_forward(n, x, y, which, window, stride, padding):
    """y = the largest value of each window, which = its place in the window."""
    y[:n] = -np.inf
    found = np.zeros(y[:n].shape, bool)
    for number, place in enumerate(np.ndindex(*window)):
        outputs, pixels = _under(place, stride, y.shape[1:4], x.shape[1:4], padding)
        value, best = x[:n][pixels], y[:n][outputs]
        wins = (value > best) | (np.isnan(value) & ~np.isnan(best)) | ~found[outputs]
        y[:n][outputs] = np.where(wins, value, best)
        which[:n][outputs] = np.where(wins, number, which[:n][outputs])
        found[outputs] = True


@device
def _inside(start, window, size, before):
    """The first and the last but one element of a window that lie inside the image, along one axis."""
    return max(0, before - start), min(window, size + before - start)


@max_forward.nest
def max_forward_nest(n, x, y, which, window, stride, padding):
    D, H, W, C = x.shape[1], x.shape[2], x.shape[3], x.shape[4]
    O, P, Q = y.shape[1], y.shape[2], y.shape[3]  # noqa: E741
    F, R, S = window
    flat_x, flat_y, flat_which = x.reshape(-1), y.reshape(-1), which.reshape(-1)
    for i in prange(n):
        offset, number = np.empty(F * R * S, np.int64), np.empty(F * R * S, np.int32)
        count, whole = 0, False  # whether the tables are those of a window that lies inside the image
        for o in range(O):
            f0, f1 = _inside(o * stride[0], F, D, padding[0])
            for p in range(P):
                r0, r1 = _inside(p * stride[1], R, H, padding[1])
                for q in range(Q):
                    s0, s1 = _inside(q * stride[2], S, W, padding[2])
                    inside = (f1 - f0) * (r1 - r0) * (s1 - s0) == F * R * S
                    if not (inside and whole):
                        count, whole = 0, inside
                        for f in range(f0, f1):
                            for r in range(r0, r1):
                                for s in range(s0, s1):
                                    offset[count] = ((f * H + r) * W + s) * C
                                    number[count] = (f * R + r) * S + s
                                    count += 1
                    d, h, v = o * stride[0] - padding[0], p * stride[1] - padding[1], q * stride[2] - padding[2]
                    start = (((i * D + d) * H + h) * W + v) * C
                    for c in range(0, C, LANES):
                        max_tile(flat_x, start + c, offset, number, count, flat_y, flat_which,
                                 (((i * O + o) * P + p) * Q + q) * C + c, min(LANES, C - c))  # fmt: skip


@operation
def max_backward(n, dy, which, dx, window, stride, padding):
    """dx = the sum of dy over the windows that each pixel has won."""
    dx[:n] = 0
    for number, place in enumerate(np.ndindex(*window)):
        outputs, pixels = _under(place, stride, dy.shape[1:4], dx.shape[1:4], padding)
        dx[:n][pixels] += np.where(which[:n][outputs] == number, dy[:n][outputs], 0)


@max_backward.nest
def max_backward_nest(n, dy, which, dx, window, stride, padding):
    D, H, W, C = dx.shape[1], dx.shape[2], dx.shape[3], dx.shape[4]
    F, R, S = window
    flat = dx.reshape(dx.shape[0], -1)
    halves = is_halving(window, stride, padding)
    for i in prange(n):
        if halves and H % 2 == 0 and W % 2 == 0:  # windows do not meet, and leave nothing out
            for o in range(D):
                for p in range(H // 2):
                    for q in range(W // 2):
                        for place in range(4):
                            for c in range(C):
                                won = which[i, o, p, q, c] == place
                                dx[i, o, 2 * p + place // 2, 2 * q + place % 2, c] = (
                                    dy[i, o, p, q, c] if won else np.float32(0)
                                )
            continue
        for j in range(flat.shape[1]):
            flat[i, j] = 0
        for o in range(dy.shape[1]):
            for p in range(dy.shape[2]):
                for q in range(dy.shape[3]):
                    d0 = o * stride[0] - padding[0]
                    h0 = p * stride[1] - padding[1]
                    v0 = q * stride[2] - padding[2]
                    for f in range(max(0, -d0), min(F, D - d0)):
                        for r in range(max(0, -h0), min(R, H - h0)):
                            for s in range(max(0, -v0), min(S, W - v0)):
                                place = np.int32((f * R + r) * S + s)
                                for c in range(C):
                                    won = which[i, o, p, q, c] == place
                                    dx[i, d0 + f, h0 + r, v0 + s, c] += dy[i, o, p, q, c] if won else np.float32(0)


@device
def divisor(place, size, window, stride, padding, count_padding):
    """How many of a window's positions along one axis count."""
    first = place * stride - padding
    if count_padding:
        return min(first + window, size + padding) - first
    return min(first + window, size) - max(first, 0)


def _divisors(y_size, x_size, window, stride, padding, count_padding):
    """Divisors of all windows: (O, P, Q, 1)."""
    axes = [
        np.array([divisor(place, size, w, s, pad, count_padding) for place in range(count)])
        for count, size, w, s, pad in zip(y_size, x_size, window, stride, padding, strict=True)
    ]
    return (axes[0][:, None, None] * axes[1][:, None] * axes[2])[..., None]


@operation
def average_forward(n, x, y, window, stride, padding, count_padding):
    """y = the mean of each window."""
    y[:n] = 0
    for place in np.ndindex(*window):
        outputs, pixels = _under(place, stride, y.shape[1:4], x.shape[1:4], padding)
        y[:n][outputs] += x[:n][pixels]
    y[:n] /= _divisors(y.shape[1:4], x.shape[1:4], window, stride, padding, count_padding)


@average_forward.nest
def average_forward_nest(n, x, y, window, stride, padding, count_padding):
    D, H, W, C = x.shape[1], x.shape[2], x.shape[3], x.shape[4]
    F, R, S = window
    for i in prange(n):
        for o in range(y.shape[1]):
            for p in range(y.shape[2]):
                for q in range(y.shape[3]):
                    d0 = o * stride[0] - padding[0]
                    h0 = p * stride[1] - padding[1]
                    v0 = q * stride[2] - padding[2]
                    for c in range(C):
                        y[i, o, p, q, c] = 0
                    for f in range(max(0, -d0), min(F, D - d0)):
                        for r in range(max(0, -h0), min(R, H - h0)):
                            for s in range(max(0, -v0), min(S, W - v0)):
                                for c in range(C):
                                    y[i, o, p, q, c] += x[i, d0 + f, h0 + r, v0 + s, c]
                    count = (
                        divisor(o, D, F, stride[0], padding[0], count_padding)
                        * divisor(p, H, R, stride[1], padding[1], count_padding)
                        * divisor(q, W, S, stride[2], padding[2], count_padding)
                    )
                    scale = np.float32(1) / np.float32(count)
                    for c in range(C):
                        y[i, o, p, q, c] *= scale


@operation
def average_backward(n, dy, dx, window, stride, padding, count_padding):
    """dx = the sum over the windows that cover each pixel of dy divided by the window's divisor."""
    dx[:n] = 0
    share = dy[:n] / _divisors(dy.shape[1:4], dx.shape[1:4], window, stride, padding, count_padding)
    for place in np.ndindex(*window):
        outputs, pixels = _under(place, stride, dy.shape[1:4], dx.shape[1:4], padding)
        dx[:n][pixels] += share[outputs]


@average_backward.nest
def average_backward_nest(n, dy, dx, window, stride, padding, count_padding):
    D, H, W, C = dx.shape[1], dx.shape[2], dx.shape[3], dx.shape[4]
    F, R, S = window
    flat = dx.reshape(dx.shape[0], -1)
    for i in prange(n):
        for j in range(flat.shape[1]):
            flat[i, j] = 0
        for o in range(dy.shape[1]):
            for p in range(dy.shape[2]):
                for q in range(dy.shape[3]):
                    d0 = o * stride[0] - padding[0]
                    h0 = p * stride[1] - padding[1]
                    v0 = q * stride[2] - padding[2]
                    count = (
                        divisor(o, D, F, stride[0], padding[0], count_padding)
                        * divisor(p, H, R, stride[1], padding[1], count_padding)
                        * divisor(q, W, S, stride[2], padding[2], count_padding)
                    )
                    scale = np.float32(1) / np.float32(count)
                    for f in range(max(0, -d0), min(F, D - d0)):
                        for r in range(max(0, -h0), min(R, H - h0)):
                            for s in range(max(0, -v0), min(S, W - v0)):
                                for c in range(C):
                                    dx[i, d0 + f, h0 + r, v0 + s, c] += dy[i, o, p, q, c] * scale
