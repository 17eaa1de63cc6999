"""Winograd's convolution F(4×4, 3×3): 3×3 filters, stride 1, with a quarter of the multiplications (Lavin & Gray 2016).

    forward            Y = Aᵀ[ (G w Gᵀ) ⊙ (Bᵀ X B) ]A        X: 6×6 patch of the image, Y: 4×4 patch of the output
    backward_data      the same, of dy with the filter turned round
    backward_weights   dw = Gᵀ[ Σ (Bᵀ X B) ⊙ (A dY Aᵀ) ]G    summed over all patches

⊙ is 36 matrix products, one for each point of the transformed patch: (patches × C)·(C × K). They run on the register
tile; the transforms, on 16 channels at a time (`patch.py`). The points of interpolation are 0, ±1/√2, ±√2, ∞: half the
rounding error of the usual 0, ±1, ±2, ∞ (Barabasz et al. 2020).

                 block of patches, for one thread, stays in its cache
    image ──Bᵀ·B──▶ V (36, patches, C) ──·U──▶ M (36, patches, K) ──Aᵀ·A──▶ output
"""

import math

import numpy as np

from .operation import device, operation, prange
from .patch import Patch, transform
from .tile import LANES, ROWS, near_tile, tile

POINTS = 36
BLOCK = 32  # patches that go through together
A, B = 1 / math.sqrt(2), math.sqrt(2)


def data_line(x):
    """Bᵀ x: six values of an image."""
    half, double = x[4] + -0.5 * x[2], x[4] + -2.0 * x[2]
    odd_a, odd_b = x[3] + -2.0 * x[1], x[3] + -0.5 * x[1]
    return [
        x[0] + x[4] + -2.5 * x[2],
        double + A * odd_a,
        double + -A * odd_a,
        half + B * odd_b,
        half + -B * odd_b,
        x[1] + x[5] + -2.5 * x[3],
    ]


def filter_line(w):
    """G w: the three values of a filter, each point divided by what the others leave."""
    even_a, odd_a = (-1 / 1.5) * w[0] + (-A * A / 1.5) * w[2], (A / 1.5) * w[1]
    even_b, odd_b = (1 / 6) * w[0] + (B * B / 6) * w[2], (B / 6) * w[1]
    return [1.0 * w[0], even_a - odd_a, even_a + odd_a, even_b + odd_b, even_b - odd_b, 1.0 * w[2]]


def output_line(m):
    """Aᵀ m: from six points to four values."""
    sum_a, less_a, sum_b, less_b = m[1] + m[2], m[1] - m[2], m[3] + m[4], m[3] - m[4]
    return [
        m[0] + sum_a + sum_b,
        A * less_a + B * less_b,
        (A * A) * sum_a + (B * B) * sum_b,
        (A * A * A) * less_a + (B * B * B) * less_b + m[5],
    ]


def gradient_line(dy):
    """A dy: four gradients of an output, to six points."""
    even_a, odd_a = dy[0] + (A * A) * dy[2], A * dy[1] + (A * A * A) * dy[3]
    even_b, odd_b = dy[0] + (B * B) * dy[2], B * dy[1] + (B * B * B) * dy[3]
    return [1.0 * dy[0], even_a + odd_a, even_a - odd_a, even_b + odd_b, even_b - odd_b, 1.0 * dy[3]]


def weight_line(u):
    """Gᵀ u: from six points to the three values of a filter."""
    sum_a, less_a, sum_b, less_b = u[1] + u[2], u[1] - u[2], u[3] + u[4], u[3] - u[4]
    return [
        u[0] + (-1 / 1.5) * sum_a + (1 / 6) * sum_b,
        (-A / 1.5) * less_a + (B / 6) * less_b,
        (-A * A / 1.5) * sum_a + (B * B / 6) * sum_b + u[5],
    ]


data_patch = Patch(data_line, 6)
filter_patch = Patch(filter_line, 3)
output_patch = Patch(output_line, 6, adds=True)
gradient_patch = Patch(gradient_line, 4)
weight_patch = Patch(weight_line, 6)


def _patches(image, rows, columns, size):
    """Overlapping patches (n, rows, columns, size, size, C) of images (n, H, W, C), 4 pixels apart."""
    n, C = image.shape[0], image.shape[3]
    strides = image.strides
    shape = n, rows, columns, size, size, C
    steps = strides[0], 4 * strides[1], 4 * strides[2], strides[1], strides[2], strides[3]
    return np.lib.stride_tricks.as_strided(image, shape, steps, writeable=False)


def _transformed(line, image, rows, columns, size):
    """Patches of an image that is large enough, transformed: (points, points, n·rows·columns, C)."""
    patches = _patches(image, rows, columns, size)
    return transform(line, np.moveaxis(patches, (3, 4), (0, 1)).reshape(size, size, -1, image.shape[3]))


def _enlarged(x, top, left, height, width):
    """Images with zeros before them, and behind them up to that size."""
    n, H, W, C = x.shape
    large = np.zeros((n, max(height, H + top), max(width, W + left), C), x.dtype)
    large[:, top : top + H, left : left + W] = x
    return large


@operation
def forward(n, x, w, b, y, top, left):
    """Convolve the first n images x (chunk, H, W, C) with w (3, 3, C, K), add b (shape (0,): no bias), into y.

    y (chunk, P, Q, K) is the output of the image with `top` rows and `left` columns of zeros before it, and as many
    behind it as it takes.
    """
    P, Q, K = y.shape[1:]
    rows, columns = -(-P // 4), -(-Q // 4)
    image = _enlarged(x[:n], top, left, 4 * rows + 2, 4 * columns + 2)
    points = _transformed(data_line, image, rows, columns, 6) @ transform(filter_line, w)
    patches = transform(output_line, points).reshape(4, 4, n, rows, columns, K)
    whole = patches.transpose(2, 3, 0, 4, 1, 5).reshape(n, 4 * rows, 4 * columns, K)
    y[:n] = whole[:, :P, :Q] + (b if b.size else 0)


@device
def _filters(w, turn, u):
    """u (36, C, K) from w (3, 3, C, K); with `turn` the filter upside down and (36, K, C), for backward_data."""
    C, K = w.shape[2], w.shape[3]
    flat, none = w.reshape(-1), np.empty(0, np.float32)
    if not turn:
        for c in range(C):
            for k in range(0, K, LANES):
                filter_patch(flat, c * K + k, 3 * C * K, C * K, 0, 3, 0, 3,
                             u, c * K + k, 6 * C * K, C * K, 6, 6, min(LANES, K - k), none, 0)  # fmt: skip
        return
    turned = np.empty(9 * C * K, np.float32)
    for f in range(9):
        for c in range(C):
            for k in range(K):
                turned[((8 - f) * K + k) * C + c] = flat[(f * C + c) * K + k]
    for k in range(K):
        for c in range(0, C, LANES):
            filter_patch(turned, k * C + c, 3 * C * K, C * K, 0, 3, 0, 3,
                         u, k * C + c, 6 * C * K, C * K, 6, 6, min(LANES, C - c), none, 0)  # fmt: skip


@device
def _convolve(first, count, x, u, b, y, top, left, v, m):
    """Patches first … first + count of all images: x (n, H, W, C) to y (n, P, Q, K); v and m are scratch."""
    H, W, C = x.shape[1], x.shape[2], x.shape[3]
    P, Q, K = y.shape[1], y.shape[2], y.shape[3]
    rows, columns = (P + 3) // 4, (Q + 3) // 4
    v_point, m_point = BLOCK * C + LANES, BLOCK * K + LANES
    flat_x, flat_y, none = x.reshape(-1), y.reshape(-1), np.empty(0, np.float32)
    a_row, c_row = np.empty(BLOCK + ROWS, np.int64), np.empty(BLOCK + ROWS, np.int64)
    for t in range(a_row.shape[0]):
        a_row[t], c_row[t] = min(t, count - 1) * C, min(t, count - 1) * K
    tap, zeros = np.zeros(1, np.int64), np.zeros(LANES, np.float32)
    for t in range(count):
        i, place = (first + t) // (rows * columns), (first + t) % (rows * columns)
        h, s = place // columns * 4 - top, place % columns * 4 - left
        above, below, before, behind = max(0, -h), min(6, H - h), max(0, -s), min(6, W - s)
        for c in range(0, C, LANES):
            data_patch(flat_x, ((i * H + h) * W + s) * C + c, W * C, C, above, below, before, behind,
                       v, t * C + c, 6 * v_point, v_point, 6, 6, min(LANES, C - c), none, 0)  # fmt: skip
    for point in range(POINTS):
        for t in range(0, count, ROWS):
            for k in range(0, K, LANES):
                tile(v, point * v_point, a_row, t, min(ROWS, count - t), tap, tap, C, 1,
                     u, point * C * K + k, K, m, point * m_point + k, c_row, min(LANES, K - k), zeros, 0)  # fmt: skip
    for t in range(count):
        i, place = (first + t) // (rows * columns), (first + t) % (rows * columns)
        p, q = place // columns * 4, place % columns * 4
        for k in range(0, K, LANES):
            output_patch(m, t * K + k, 6 * m_point, m_point, 0, 6, 0, 6,
                         flat_y, ((i * P + p) * Q + q) * K + k, Q * K, K, min(4, P - p), min(4, Q - q),
                         min(LANES, K - k), b, k)  # fmt: skip


@forward.nest
def forward_nest(n, x, w, b, y, top, left):
    C, P, Q, K = x.shape[3], y.shape[1], y.shape[2], y.shape[3]
    u = np.empty(POINTS * C * K, np.float32)
    _filters(w, False, u)
    patches = n * ((P + 3) // 4) * ((Q + 3) // 4)
    for block in prange((patches + BLOCK - 1) // BLOCK):
        v = np.empty(POINTS * (BLOCK * C + LANES), np.float32)
        m = np.empty(POINTS * (BLOCK * K + LANES), np.float32)
        first = block * BLOCK
        _convolve(first, min(BLOCK, patches - first), x, u, b, y, top, left, v, m)


@operation
def backward_data(n, dy, w, dx, top, left):
    """Gradient dx (chunk, H, W, C) of the first n images, from dy (chunk, P, Q, K); top and left as in forward."""
    turned = np.ascontiguousarray(w[::-1, ::-1].swapaxes(2, 3))
    forward(n, dy, turned, np.zeros(0, dy.dtype), dx, 2 - top, 2 - left)


@backward_data.nest
def backward_data_nest(n, dy, w, dx, top, left):
    K, H, W, C = dy.shape[3], dx.shape[1], dx.shape[2], dx.shape[3]
    u, none = np.empty(POINTS * C * K, np.float32), np.empty(0, np.float32)
    _filters(w, True, u)
    patches = n * ((H + 3) // 4) * ((W + 3) // 4)
    for block in prange((patches + BLOCK - 1) // BLOCK):
        v = np.empty(POINTS * (BLOCK * K + LANES), np.float32)
        m = np.empty(POINTS * (BLOCK * C + LANES), np.float32)
        first = block * BLOCK
        _convolve(first, min(BLOCK, patches - first), dy, u, none, dx, 2 - top, 2 - left, v, m)


@operation
def backward_weights(n, x, dy, dw, top, left):
    """Gradient dw (3, 3, C, K) of the first n samples; top and left as in forward."""
    P, Q = dy.shape[1:3]
    rows, columns = -(-P // 4), -(-Q // 4)
    image = _enlarged(x[:n], top, left, 4 * rows + 2, 4 * columns + 2)
    data = _transformed(data_line, image, rows, columns, 6)
    gradient = _transformed(gradient_line, _enlarged(dy[:n], 0, 0, 4 * rows, 4 * columns), rows, columns, 4)
    dw[...] = transform(weight_line, data.swapaxes(2, 3) @ gradient)


@backward_weights.nest
def backward_weights_nest(n, x, dy, dw, top, left):
    H, W, C = x.shape[1], x.shape[2], x.shape[3]
    P, Q, K = dy.shape[1], dy.shape[2], dy.shape[3]
    rows, columns = (P + 3) // 4, (Q + 3) // 4
    patches = n * rows * columns
    v_point, g_point = BLOCK * C + LANES, BLOCK * K + LANES
    v, g = np.empty(POINTS * v_point, np.float32), np.empty(POINTS * g_point, np.float32)
    du, none = np.empty(POINTS * C * K, np.float32), np.empty(0, np.float32)
    flat_x, flat_dy, flat_dw = x.reshape(-1), dy.reshape(-1), dw.reshape(-1)
    a_row, c_row = np.empty(C + ROWS, np.int64), np.empty(C + ROWS, np.int64)
    for c in range(a_row.shape[0]):
        a_row[c], c_row[c] = min(c, C - 1), min(c, C - 1) * K
    tap, zeros = np.zeros(1, np.int64), np.zeros(LANES, np.float32)
    # Blocks come one after the other, so that every sum is one chain; threads share a block's patches, then its points.
    for first in range(0, patches, BLOCK):
        count = min(BLOCK, patches - first)
        for t in prange(count):
            i, place = (first + t) // (rows * columns), (first + t) % (rows * columns)
            p, q = place // columns * 4, place % columns * 4
            h, s = p - top, q - left
            above, below, before, behind = max(0, -h), min(6, H - h), max(0, -s), min(6, W - s)
            for c in range(0, C, LANES):
                data_patch(flat_x, ((i * H + h) * W + s) * C + c, W * C, C, above, below, before, behind,
                           v, t * C + c, 6 * v_point, v_point, 6, 6, min(LANES, C - c), none, 0)  # fmt: skip
            for k in range(0, K, LANES):
                gradient_patch(flat_dy, ((i * P + p) * Q + q) * K + k, Q * K, K, 0, min(4, P - p), 0, min(4, Q - q),
                               g, t * K + k, 6 * g_point, g_point, 6, 6, min(LANES, K - k), none, 0)  # fmt: skip
        for point in prange(POINTS):
            for c in range(0, C, ROWS):
                for k in range(0, K, LANES):
                    near_tile(v, point * v_point, a_row, c, min(ROWS, C - c), tap, tap, count, C,
                         g, point * g_point + k, K, du, point * C * K + k, c_row, min(LANES, K - k),
                              none if first else zeros, 0)  # fmt: skip
    for c in prange(C):
        for k in range(0, K, LANES):
            weight_patch(du, c * K + k, 6 * C * K, C * K, 0, 6, 0, 6,
                         flat_dw, c * K + k, 3 * C * K, C * K, 3, 3, min(LANES, K - k), none, 0)  # fmt: skip
