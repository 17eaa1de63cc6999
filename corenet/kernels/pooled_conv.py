"""A convolution whose output goes into a max-pool: one pass forward, and gradients straight from those behind the pool.

    forward            y[i,o,k] = max over the window's pixels of the convolution, which[i,o,k] = the winner's place

The convolution's own output is never in memory (`pooled_tile.py`). Only the pixel that won a window has a gradient, so
behind a 2×2 pool three quarters of the convolution's dy are 0, and more where a ReLU is dead. The gradients go from one
winner to the next instead:

    backward_weights   dw[f,c,k] = Σ over windows       dy[i,o,k] · x[i, winner·stride + f, c]
    backward_data      dx[i, winner·stride + f, c]  +=  dy[i,o,k] · w[f,c,k]

Each winner brings F·R rows of (s, c), contiguous in x and in a filter: those of a winner tile (`winner_tile.py`).
Arrays are those of `conv.py`, without groups and dilation, and of `pool.py`: dy and which (chunk, O, P, Q, K) behind
the pool.
"""

import math

import numpy as np

from . import conv, pool
from .operation import device, operation, prange
from .pooled_tile import PLACES, near_pooled_tile, pooled_tile, windows_at_once
from .tile import ROWS, padded
from .vectors import LANES, NARROW
from .winner_tile import gather_winners, scatter_winners

NONE = (1, 1, 1)  # dilation: pixels of a filter are neighbours
HALVES = (1, 2, 2), (1, 2, 2), (0, 0, 0)  # window, step and padding of a pool that halves an image
MOST = 8  # windows: tables are longer by that, since a tile reads as many entries as it has rows


def is_faster(w_shape, y_shape, z_shape) -> bool:
    """Whether going from winner to winner takes fewer steps than the dense gradient, for w (F, R, S, C, K), a
    convolution's output y and the pool's z: counted in vectors, for each number of y."""
    F, R, S, C, K = w_shape
    winners = 2 * F * R * -(-S * C // LANES) + 3  # unaligned rows cost twice, finding the winner a little
    dense = F * R * S * C / LANES * (padded(K, LANES) / K) + 0.5  # and dy is written in full
    return winners * math.prod(z_shape) < dense * math.prod(y_shape)


@operation
def forward(n, x, w, b, y, which, stride):
    """The 2×2 max-pool of the first n padded images of x convolved with w, plus b (shape (0,): no bias), into y, and
    each winner's place, into which; an odd last line or column is left out."""
    sizes = [(x.shape[1 + a] - w.shape[a]) // stride[a] + 1 for a in range(3)]
    full = np.empty((x.shape[0], *sizes, w.shape[4]), y.dtype)
    conv.forward(n, x, w, b, full, stride, NONE, 1)
    pool.max_forward(n, full, y, which, *HALVES)


@forward.nest
def forward_nest(n, x, w, b, y, which, stride):
    D, H, W, C = x.shape[1], x.shape[2], x.shape[3], x.shape[4]
    F, R, S, K = w.shape[0], w.shape[1], w.shape[2], w.shape[4]
    P, Q = y.shape[2], y.shape[3]
    windows = y.shape[1] * P * Q
    a_row, m = np.empty((windows + MOST) * PLACES, np.int64), 0
    for o in range(y.shape[1]):
        for p in range(P):
            for q in range(Q):
                corner = ((o * stride[0] * H + 2 * p * stride[1]) * W + 2 * q * stride[2]) * C
                a_row[m], a_row[m + 1] = corner, corner + stride[2] * C
                below = corner + stride[1] * W * C
                a_row[m + 2], a_row[m + 3] = below, below + stride[2] * C
                m += PLACES
    a_row[m:] = a_row[m - 1]
    a_tap, b_tap = np.empty(F * R, np.int64), np.empty(F * R, np.int64)
    for t in range(F * R):
        a_tap[t], b_tap[t] = (t // R * H + t % R) * W * C, t * S * C * K
    flat_x, flat_w, flat_y, flat_which = x.reshape(-1), w.reshape(-1), y.reshape(-1), which.reshape(-1)
    begin = b if b.shape[0] > 0 else np.zeros(K, np.float32)
    whole = K // LANES  # vectors of LANES columns; what is left goes by NARROW ones
    for i in prange(n):
        for vector in range(whole + (K % LANES + NARROW - 1) // NARROW):
            lanes = LANES if vector < whole else NARROW
            k = vector * lanes if vector < whole else whole * LANES + (vector - whole) * lanes
            high = windows_at_once(ROWS, True, lanes)
            near = stride[2] * C == 1 and high <= Q  # pixels of a line of a grey image are neighbours
            across = Q if near else windows
            high = windows_at_once(ROWS, near, lanes)
            for line in range(0, windows, across):
                for block in range(line, line + across, high):
                    t = max(line, min(block, line + across - high))  # a last one goes over some windows again
                    count, cols, y0 = min(high, line + across - t), min(lanes, K - k), (i * windows + t) * K + k
                    if near:
                        near_pooled_tile(flat_x, i * D * H * W * C, a_row, t * PLACES, count, a_tap, b_tap, S * C, 1,
                                         flat_w, k, K, begin, k, flat_y, flat_which, y0, K, cols)  # fmt: skip
                    else:
                        pooled_tile(flat_x, i * D * H * W * C, a_row, t * PLACES, count, a_tap, b_tap, S * C, 1,
                                    flat_w, k, K, begin, k, flat_y, flat_which, y0, K, cols)  # fmt: skip


def _before_pool(n, dy, which, sizes, window, step, around):
    """The gradient before the pool, of an image of those sizes."""
    full = np.empty((dy.shape[0], *sizes, dy.shape[4]), dy.dtype)
    pool.max_backward(n, dy, which, full, window, step, around)
    return full


@operation
def backward_weights(n, x, dy, which, dw, stride, window, step, around):
    """Gradient dw of the first n samples, from padded images x; window, step and around are the pool's."""
    sizes = [(x.shape[1 + a] - dw.shape[a]) // stride[a] + 1 for a in range(3)]
    conv.backward_weights(n, x, _before_pool(n, dy, which, sizes, window, step, around), dw, stride, NONE, 1)


@device
def _windows(output, stride, window, step, around, H, W, C, first, inside):
    """Where in the convolution's image the first pixel of each window's filter lies, and how much further for each of
    the window's pixels."""
    t = 0
    for o in range(output[0]):
        for p in range(output[1]):
            for q in range(output[2]):
                d, h, v = o * step[0] - around[0], p * step[1] - around[1], q * step[2] - around[2]
                first[t] = ((d * stride[0] * H + h * stride[1]) * W + v * stride[2]) * C
                t += 1
    for t in range(inside.shape[0]):
        d, h, v = t // (window[1] * window[2]), t // window[2] % window[1], t % window[2]
        inside[t] = ((d * stride[0] * H + h * stride[1]) * W + v * stride[2]) * C


@backward_weights.nest
def backward_weights_nest(n, x, dy, which, dw, stride, window, step, around):
    D, H, W, C = x.shape[1], x.shape[2], x.shape[3], x.shape[4]
    R, K = dw.shape[1], dw.shape[4]
    rows, columns = dw.shape[0] * R, dw.shape[2] * C
    output = dy.shape[1], dy.shape[2], dy.shape[3]
    windows = output[0] * output[1] * output[2]
    first, inside = np.empty(windows, np.int64), np.empty(window[0] * window[1] * window[2], np.int64)
    _windows(output, stride, window, step, around, H, W, C, first, inside)
    x_row, sum_row = np.empty(rows, np.int64), np.empty(rows, np.int64)
    for m in range(rows):
        x_row[m], sum_row[m] = (m // R * H + m % R) * W * C, m * columns
    flat_x, flat_dy, flat_which, flat_dw = x.reshape(-1), dy.reshape(-1), which.reshape(-1), dw.reshape(-1)
    for k in prange(K):
        sums = np.zeros(rows * columns, np.float32)
        gather_winners(flat_x, D * H * W * C, first, inside, flat_dy, flat_which, k, K, n,
                       x_row, rows, sums, sum_row, columns)  # fmt: skip
        for m in range(rows * columns):
            flat_dw[m * K + k] = sums[m]


@device
def _extent(size, padding, outputs, window, step, around, filter_size, stride):
    """Length of the padded image that gradients are added to: as far as windows reach, and as the image."""
    reached = ((outputs - 1) * step - around + window - 1) * stride + filter_size
    return max(size + padding, reached)


def backward_data_work(dx_shape, dy_shape, w_shape, stride, padding, window, step, around) -> int:
    """Floats of scratch that backward_data needs: the filters, outputs first, and padded images."""
    total = dx_shape[0] * dx_shape[4]
    for a in range(3):
        total *= _extent(
            dx_shape[1 + a], padding[a], dy_shape[1 + a], window[a], step[a], around[a], w_shape[a], stride[a]
        )
    F, R, S, C, K = w_shape
    return K * F * R * padded(S * C, LANES) + total


@operation
def backward_data(n, dy, which, w, dx, sizes, stride, padding, window, step, around, work):
    """Gradient dx of the first n images before padding; `sizes` (O, P, Q) are the convolution's outputs, `padding` is
    the one before the image, window, step and around are the pool's; `work` is scratch, see backward_data_work."""
    before = _before_pool(n, dy, which, sizes, window, step, around)
    conv.backward_data(n, before, w, dx, stride, padding, NONE, 1, work)


@backward_data.nest
def backward_data_nest(n, dy, which, w, dx, sizes, stride, padding, window, step, around, work):
    D, H, W, C = dx.shape[1], dx.shape[2], dx.shape[3], dx.shape[4]
    F, R, S, K = w.shape[0], w.shape[1], w.shape[2], w.shape[4]
    rows, columns = F * R, S * C
    output = dy.shape[1], dy.shape[2], dy.shape[3]
    windows, places = output[0] * output[1] * output[2], window[0] * window[1] * window[2]
    depth = _extent(D, padding[0], output[0], window[0], step[0], around[0], F, stride[0])
    height = _extent(H, padding[1], output[1], window[1], step[1], around[1], R, stride[1])
    width = _extent(W, padding[2], output[2], window[2], step[2], around[2], S, stride[2])
    image = depth * height * width * C
    first, inside = np.empty(windows, np.int64), np.empty(places, np.int64)
    _windows(output, stride, window, step, around, height, width, C, first, inside)
    flat_w, flat_dy, flat_which, flat_dx = w.reshape(-1), dy.reshape(-1), which.reshape(-1), dx.reshape(-1)
    line = padded(columns, LANES)  # rows of the filters in `work` begin where vectors do
    filters = K * rows * line
    w_row, image_row = np.empty(rows, np.int64), np.empty(rows, np.int64)
    for m in range(rows):
        w_row[m], image_row[m] = m * line, (m // R * height + m % R) * width * C
        for k in range(K):
            for j in range(columns):
                work[(k * rows + m) * line + j] = flat_w[(m * columns + j) * K + k]
    for i in prange(n):
        work[filters + i * image : filters + (i + 1) * image] = 0
        for place in range(places):
            for t in range(windows):
                scatter_winners(flat_dy, flat_which, (i * windows + t) * K, K, place, work, rows * line, w_row, rows,
                                work, filters + i * image + first[t] + inside[place], image_row, columns)  # fmt: skip
        for d in range(D):
            for h in range(H):
                start = filters + i * image + (((d + padding[0]) * height + h + padding[1]) * width + padding[2]) * C
                target = ((i * D + d) * H + h) * W * C
                flat_dx[target : target + W * C] = work[start : start + W * C]
