"""Convolution (cross-correlation, as every deep-learning library means it) and its two gradients, in three dimensions.

    forward            y[i,o,k]  = b[k] + Σ_{f,c}  x[i, o·stride + f·dilation, c] · w[f,c,k]
    backward_weights   dw[f,c,k] =        Σ_{i,o}  x[i, o·stride + f·dilation, c] · dy[i,o,k]
    backward_data      dx[i,h,c] =        Σ_{f,k}  dy[i,o,k] · w[f,c,k]    over all o·stride + f·dilation = h + padding

o, f and h stand for positions (depth, row, column); one- and two-dimensional convolutions have a depth, or a depth and
a height, of one. Layouts: x (chunk, D, H, W, C) and already padded, w (F, R, S, C/groups, K), y (chunk, O, P, Q, K),
b (K,) or (0,) for no bias. `dx` is the gradient of the image *before* padding, so backward_data is told the padding.
With groups (Krizhevsky et al. 2012), group g connects the g-th part of the input's channels to that of the output's.

All three run on the tile of `tile.py`; they differ in what its rows, taps and steps stand for:

                      rows                taps                  step l along          tile's b
    forward           output pixels       filter rows (f, r)    (s, c), contiguous    w
    backward_weights  (f, r, s, c)        output rows (o, p)    q                     dy
    backward_data     pixels of dx        filter rows (f, r)    (s, k), contiguous    w, turned round

With groups or a dilated width, (s, c) is not contiguous: then every filter element is a tap, and l runs over c or k.
"""

import math

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from .operation import device, operation, prange
from .tile import LANES, ROWS, evenly, near_height, near_tile, padded, tile

NEAR = 4096  # floats of dy that the tiles of a weight gradient go over together
BLOCKS = 16  # blocks of 2·ROWS rows of a weight gradient that one thread makes together


def _windows(x, filter_size, output_size, stride, dilation):
    """Views of x (n, D, H, W, C) under each filter position: (n, O, P, Q, C, F, R, S)."""
    extent = tuple(d * (size - 1) + 1 for size, d in zip(filter_size, dilation, strict=True))
    ends = ((count - 1) * step + 1 for count, step in zip(output_size, stride, strict=True))
    positions = (slice(None), *map(slice, (0, 0, 0), ends, stride), slice(None))
    elements = tuple(slice(None, None, d) for d in dilation)
    return sliding_window_view(x, extent, axis=(1, 2, 3))[positions + elements]


def _parts(channels, groups):
    """The slices of the channels that belong to each group."""
    size = channels // groups
    return [slice(g * size, (g + 1) * size) for g in range(groups)]


@operation
def forward(n, x, w, b, y, stride, dilation, groups):
    """Convolve the first n padded images of x with w, add b (shape (0,): no bias), into y."""
    windows = _windows(x[:n], w.shape[:3], y.shape[1:4], stride, dilation)
    for c, k in zip(_parts(x.shape[4], groups), _parts(w.shape[4], groups), strict=True):
        y[:n, ..., k] = np.tensordot(windows[..., c, :, :, :], w[..., k], axes=([5, 6, 7, 4], [0, 1, 2, 3]))
    if b.size:
        y[:n] += b


@forward.nest
def forward_nest(n, x, w, b, y, stride, dilation, groups):
    D, H, W, C = x.shape[1], x.shape[2], x.shape[3], x.shape[4]
    F, R, S, inputs, K = w.shape
    O, P, Q = y.shape[1], y.shape[2], y.shape[3]  # noqa: E741
    image, pixels, outputs = D * H * W * C, O * P * Q, K // groups
    a_row, c_row, m = np.empty(pixels + 2 * ROWS, np.int64), np.empty(pixels + 2 * ROWS, np.int64), 0
    for o in range(O):
        for p in range(P):
            for q in range(Q):
                a_row[m], c_row[m] = ((o * stride[0] * H + p * stride[1]) * W + q * stride[2]) * C, m * K
                m += 1
    a_row[m:], c_row[m:] = a_row[m - 1], c_row[m - 1]  # tables are read beyond their end
    whole_rows = groups == 1 and dilation[2] == 1
    columns = 1 if whole_rows else S
    length = S * C if whole_rows else inputs
    a_tap = np.empty(F * R * columns, np.int64)
    b_tap = np.empty(F * R * columns, np.int64)
    for t in range(a_tap.shape[0]):
        f, r, s = t // (R * columns), t // columns % R, t % columns
        a_tap[t] = ((f * dilation[0] * H + r * dilation[1]) * W + s * dilation[2]) * C
        b_tap[t] = ((f * R + r) * S + s) * inputs * K
    flat_x, flat_w, flat_y = x.reshape(-1), w.reshape(-1), y.reshape(-1)
    begin = b if b.shape[0] > 0 else np.zeros(K, np.float32)
    # Pixels of a row of grey images are neighbours.
    near = stride[2] * C == 1
    high, across = (near_height(K), Q) if near else (ROWS, pixels)
    for i in prange(n):
        for line in range(0, pixels, across):
            for block in range(line, line + across, high):
                m = max(line, min(block, line + across - high))  # a last one that is whole goes over some pixels again
                rows = min(high, line + across - m)
                for g in range(groups):
                    for k in range(0, outputs, LANES):
                        cols = min(LANES, outputs - k)
                        y0 = i * pixels * K + g * outputs + k
                        if near:
                            near_tile(flat_x, i * image, a_row, m, rows, a_tap, b_tap, length, 1,
                                      flat_w, k, K, flat_y, y0, c_row, cols, begin, k)  # fmt: skip
                        else:
                            tile(flat_x, i * image + g * inputs, a_row, m, rows, a_tap, b_tap, length, 1,
                                 flat_w, g * outputs + k, K, flat_y, y0, c_row, cols,
                                 begin, g * outputs + k)  # fmt: skip


@operation
def backward_weights(n, x, dy, dw, stride, dilation, groups):
    """Gradient dw (F, R, S, C/groups, K) of the first n samples, from padded images x and dy."""
    windows = _windows(x[:n], dw.shape[:3], dy.shape[1:4], stride, dilation)
    for c, k in zip(_parts(x.shape[4], groups), _parts(dw.shape[4], groups), strict=True):
        part = np.tensordot(windows[..., c, :, :, :], dy[:n, ..., k], axes=([0, 1, 2, 3], [0, 1, 2, 3]))
        dw[..., k] = part.transpose(1, 2, 3, 0, 4)


@device
def _row_of(number, blocks, run):
    """The first row of a block of tiles, where every run of rows has blocks of its own."""
    return number // blocks * run + min(number % blocks * 2 * ROWS, run)


@backward_weights.nest
def backward_weights_nest(n, x, dy, dw, stride, dilation, groups):
    D, H, W, C = x.shape[1], x.shape[2], x.shape[3], x.shape[4]
    R, S, inputs, K = dw.shape[1], dw.shape[2], dw.shape[3], dw.shape[4]
    O, P, Q = dy.shape[1], dy.shape[2], dy.shape[3]  # noqa: E741
    image, pixels, outputs = D * H * W * C, O * P * Q, K // groups
    elements = dw.shape[0] * R * S * inputs
    a_row = np.empty(elements + 2 * ROWS, np.int64)
    c_row = np.empty(elements + 2 * ROWS, np.int64)
    for m in range(a_row.shape[0]):
        element = min(m, elements - 1)
        place, c = element // inputs, element % inputs
        f, r, s = place // (R * S), place // S % R, place % S
        a_row[m] = ((f * dilation[0] * H + r * dilation[1]) * W + s * dilation[2]) * C + c
        c_row[m] = element * K
    a_tap = np.empty(O * P, np.int64)
    b_tap = np.empty(O * P, np.int64)
    for t in range(O * P):
        a_tap[t] = (t // P * stride[0] * H + t % P * stride[1]) * W * C
        b_tap[t] = t * Q * K
    flat_x, flat_dy, flat_dw = x.reshape(-1), dy.reshape(-1), dw.reshape(-1)
    zeros, go_on = np.zeros(LANES, np.float32), np.empty(0, np.float32)
    # Rows of a filter line are neighbours in x: such tiles are faster, unless a fifth of them would be empty.
    run = dw.shape[2] * C if groups == 1 and dilation[2] == 1 else inputs
    near = 4 * padded(run, near_height(outputs)) <= 5 * run
    run = run if near else elements
    blocks = (run + 2 * ROWS - 1) // (2 * ROWS)
    # All blocks of a group pass over a few lines of dy and x before any goes on: these stay in the nearest cache.
    lines = max(1, NEAR // (Q * K))
    for group in prange((elements // run * blocks + BLOCKS - 1) // BLOCKS):
        first, last = group * BLOCKS, min((group + 1) * BLOCKS, elements // run * blocks)
        for i in range(n):
            for t in range(0, O * P, lines):
                end, start = min(t + lines, O * P), (go_on if i + t > 0 else zeros)
                for g in range(groups):
                    for k in range(g * outputs, (g + 1) * outputs, LANES):
                        cols = min(LANES, (g + 1) * outputs - k)
                        high = near_height(cols) if near else ROWS
                        for number in range(first, last):
                            above, below = _row_of(number, blocks, run), _row_of(number + 1, blocks, run)
                            step = evenly(below - above, high)
                            for m in range(above, below, step):
                                rows = min(step, below - m)
                                if near:
                                    near_tile(flat_x, i * image + g * inputs, a_row, m, rows, a_tap[t:end],
                                              b_tap[t:end], Q, stride[2] * C, flat_dy, i * pixels * K + k, K,
                                              flat_dw, k, c_row, cols, start, 0)  # fmt: skip
                                else:
                                    tile(flat_x, i * image + g * inputs, a_row, m, rows, a_tap[t:end],
                                         b_tap[t:end], Q, stride[2] * C, flat_dy, i * pixels * K + k, K,
                                         flat_dw, k, c_row, cols, start, 0)  # fmt: skip


@device
def border(filter_size, stride, dilation):
    """Zeros needed before dy: how far the last filter element reaches back."""
    return (filter_size - 1) * dilation // stride


@device
def bordered_size(size, outputs, filter_size, stride, padding, dilation):
    """Length of dy with its border of zeros on both sides."""
    return border(filter_size, stride, dilation) + max((size - 1 + padding) // stride + 1, outputs)


def backward_data_work(dx_shape, dy_shape, w_shape, stride, padding, dilation) -> int:
    """Floats of scratch that backward_data needs: a chunk of dy with a border of zeros, and the turned filters."""
    total = dx_shape[0] * dy_shape[4]
    for a in range(3):
        total *= bordered_size(dx_shape[1 + a], dy_shape[1 + a], w_shape[a], stride[a], padding[a], dilation[a])
    return total + math.prod(w_shape)


@operation
def backward_data(n, dy, w, dx, stride, padding, dilation, groups, work):
    """Gradient dx of the first n images before padding, from dy and w; padding is the one before the image (it may be
    another after it); `work` is scratch, see backward_data_work."""
    size = dx.shape[1:4]
    reached = [(dy.shape[1 + a] - 1) * stride[a] + (w.shape[a] - 1) * dilation[a] + 1 for a in range(3)]
    extent = [max(size[a] + padding[a], reached[a]) for a in range(3)]
    image = np.zeros((n, *extent, dx.shape[4]), dx.dtype)
    for f in np.ndindex(w.shape[:3]):
        first = [f[a] * dilation[a] for a in range(3)]
        end = [first[a] + (dy.shape[1 + a] - 1) * stride[a] + 1 for a in range(3)]
        d, h, v = map(slice, first, end, stride)
        under = image[:, d, h, v]
        for c, k in zip(_parts(dx.shape[4], groups), _parts(dy.shape[4], groups), strict=True):
            under[..., c] += dy[:n, ..., k] @ w[f][:, k].T
    d, h, v = (slice(p, p + s) for s, p in zip(size, padding, strict=True))
    dx[:n] = image[:, d, h, v]


@device
def _phase(phase, filter_size, stride, dilation, element, reach):
    """The filter elements that meet pixels of this phase, and how far back in dy each reaches; how many there are."""
    count = 0
    for f in range(filter_size):
        if f * dilation % stride == phase:
            element[count] = f
            reach[count] = (f * dilation - phase) // stride
            count += 1
    return count


@device
def phase_rows(phase, dx_shape, bordered, stride, padding, before, a_row, c_row):
    """Where each pixel of dx of a phase starts in dy with its border, of these sizes and with that much before it, and
    in dx; how many there are."""
    K, C = bordered[3], dx_shape[4]
    pixels = 0
    for d in range((phase[0] - padding[0]) % stride[0], dx_shape[1], stride[0]):
        for h in range((phase[1] - padding[1]) % stride[1], dx_shape[2], stride[1]):
            for v in range((phase[2] - padding[2]) % stride[2], dx_shape[3], stride[2]):
                o = (d + padding[0] - phase[0]) // stride[0] + before[0]
                p = (h + padding[1] - phase[1]) // stride[1] + before[1]
                q = (v + padding[2] - phase[2]) // stride[2] + before[2]
                a_row[pixels] = ((o * bordered[1] + p) * bordered[2] + q) * K
                c_row[pixels] = ((d * dx_shape[2] + h) * dx_shape[3] + v) * C
                pixels += 1
    for m in range(pixels, a_row.shape[0]):  # tables are read beyond their end
        a_row[m], c_row[m] = a_row[max(0, pixels - 1)], c_row[max(0, pixels - 1)]
    return pixels


@device
def phase_taps(phase, w, bordered, stride, dilation, groups, a_tap, turned):
    """Where each tap of a phase starts in dy with its border, and its filter elements, turned round: (t, k, c).

    How many taps there are, and the steps of each.
    """
    F, R, S, inputs, K = w.shape
    outputs, C = K // groups, inputs * groups
    elements = np.empty((3, max(F, R, S)), np.int64)
    reach = np.empty((3, max(F, R, S)), np.int64)
    depths = _phase(phase[0], F, stride[0], dilation[0], elements[0], reach[0])
    lines = _phase(phase[1], R, stride[1], dilation[1], elements[1], reach[1])
    columns = _phase(phase[2], S, stride[2], dilation[2], elements[2], reach[2])
    # Filter columns from last to first are neighbours in dy, from left to right, where the reach grows by one.
    whole_rows = groups == 1 and columns > 0 and reach[2, columns - 1] - reach[2, 0] == columns - 1
    for t in range(depths * lines * columns):
        line, column = t // columns, columns - 1 - t % columns
        f, r, s = elements[0, line // lines], elements[1, line % lines], elements[2, column]
        back = (reach[0, line // lines] * bordered[1] + reach[1, line % lines]) * bordered[2] + reach[2, column]
        if not whole_rows or t % columns == 0:
            a_tap[line if whole_rows else t] = -back * K
        for k in range(outputs):
            for g in range(groups):
                for c in range(inputs):
                    turned[(t * outputs + k) * C + g * inputs + c] = w[f, r, s, c, g * outputs + k]
    return (depths * lines, columns * K) if whole_rows else (depths * lines * columns, outputs)


@device
def borders(dx_shape, dy_shape, w_shape, stride, padding, dilation):
    """The sizes of dy with its border of zeros (with K), and how much of it lies before."""
    front = border(w_shape[0], stride[0], dilation[0])
    top = border(w_shape[1], stride[1], dilation[1])
    left = border(w_shape[2], stride[2], dilation[2])
    depth = bordered_size(dx_shape[1], dy_shape[1], w_shape[0], stride[0], padding[0], dilation[0])
    height = bordered_size(dx_shape[2], dy_shape[2], w_shape[1], stride[1], padding[1], dilation[1])
    width = bordered_size(dx_shape[3], dy_shape[3], w_shape[2], stride[2], padding[2], dilation[2])
    return (depth, height, width, dy_shape[4]), (front, top, left)


@backward_data.nest
def backward_data_nest(n, dy, w, dx, stride, padding, dilation, groups, work):
    # A pixel of dx meets only the filter elements of its own phase modulo the stride, so each phase is a small dense
    # correlation of dy: nothing is multiplied by the zeros of a dilated dy.
    C, K, inputs, outputs = dx.shape[4], w.shape[4], w.shape[3], w.shape[4] // groups
    P, Q = dy.shape[2], dy.shape[3]
    sizes, before = borders(dx.shape, dy.shape, w.shape, stride, padding, dilation)
    lines, image = dy.shape[1] * P, sizes[0] * sizes[1] * sizes[2] * K
    bordered = work[: n * image]
    turned = work[work.shape[0] - w.size :]
    flat_dy = dy.reshape(-1)
    for i in prange(n):
        image_of_zeros = bordered[i * image : (i + 1) * image]
        for j in range(image):
            image_of_zeros[j] = 0
        for line in range(lines):
            place = ((line // P + before[0]) * sizes[1] + line % P + before[1]) * sizes[2] + before[2]
            source = flat_dy[(i * lines + line) * Q * K : (i * lines + line + 1) * Q * K]
            target = bordered[i * image + place * K : i * image + (place + Q) * K]
            for j in range(Q * K):
                target[j] = source[j]
    flat_dx, zeros = dx.reshape(-1), np.zeros(LANES, np.float32)
    pixels_all = dx.shape[1] * dx.shape[2] * dx.shape[3]
    a_row = np.empty(pixels_all + 2 * ROWS, np.int64)
    c_row = np.empty(pixels_all + 2 * ROWS, np.int64)
    a_tap = np.empty(w.shape[0] * w.shape[1] * w.shape[2], np.int64)
    b_tap = np.empty(w.shape[0] * w.shape[1] * w.shape[2], np.int64)
    for number in range(stride[0] * stride[1] * stride[2]):
        phase = number // (stride[1] * stride[2]), number // stride[2] % stride[1], number % stride[2]
        pixels = phase_rows(phase, dx.shape, sizes, stride, padding, before, a_row, c_row)
        used, length = phase_taps(phase, w, sizes, stride, dilation, groups, a_tap, turned)
        for t in range(used):
            b_tap[t] = t * length * C
        for i in prange(n):
            for m in range(0, pixels, ROWS):
                rows = min(ROWS, pixels - m)
                for g in range(groups):
                    for c in range(g * inputs, (g + 1) * inputs, LANES):
                        tile(bordered, i * image + g * outputs, a_row, m, rows, a_tap[:used], b_tap[:used], length, 1,
                             turned, c, C, flat_dx, i * pixels_all * C + c, c_row,
                             min(LANES, (g + 1) * inputs - c), zeros, 0)  # fmt: skip
