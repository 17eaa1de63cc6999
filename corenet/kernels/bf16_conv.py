"""Convolution and its two gradients with operands of bfloat16: `conv.py` on the tile of `bf16_tile.py`.

Rows, taps and steps are those of `conv.py`; pairs are made of neighbouring steps:

                      pairs along         a's copy                              b's copy
    forward           (s, c)              x as it lies                          w, pairs of rows (s, c)
    backward_weights  output columns q    pixels and those a stride behind      dy, pairs of columns q
    backward_data     (s, k)              dy with its border                    w turned round, pairs of rows (s, k)

The copies lie in `work`, bits of bfloat16 in uint16; `*_work` say how many it takes.
"""

import math

import numpy as np

from . import conv
from .bf16_tile import HEIGHT, WIDE, bf16_tile
from .bfloat16 import pair_rows, round_row, rounded
from .conv import borders, phase_rows, phase_taps
from .operation import device, operation, prange


@device
def pair_taps(source, taps, length, columns, target):
    """Pairs of the rows of each tap (taps, length, columns); an odd last row is paired with zeros."""
    pairs = (length + 1) // 2
    for t in range(taps):
        for pair in range(pairs):
            even = (t * length + 2 * pair) * columns
            odd = even + columns if 2 * pair + 1 < length else -1
            pair_rows(source, even, odd, target, (t * pairs + pair) * 2 * columns, columns)


def forward_work(x_shape, w_shape) -> int:
    """Scratch of forward: a chunk of images, and w with a row more for each tap."""
    return math.prod(x_shape) + math.prod(w_shape[:3]) * (w_shape[3] + 1) * w_shape[4]


@operation
def forward(n, x, w, b, y, stride, dilation, groups, work):
    """`conv.forward` of x and w rounded to bfloat16."""
    conv.forward(n, rounded(x[:n]), rounded(w), b, y, stride, dilation, groups)


@forward.nest
def forward_nest(n, x, w, b, y, stride, dilation, groups, work):
    D, H, W, C = x.shape[1], x.shape[2], x.shape[3], x.shape[4]
    F, R, S, inputs, K = w.shape
    O, P, Q = y.shape[1], y.shape[2], y.shape[3]  # noqa: E741
    image, pixels, outputs = D * H * W * C, O * P * Q, K // groups
    a_row = np.empty(pixels + HEIGHT, np.int64)
    c_row = np.empty(pixels + HEIGHT, np.int64)
    for m in range(a_row.shape[0]):
        pixel = min(m, pixels - 1)
        o, p, q = pixel // (P * Q), pixel // Q % P, pixel % Q
        a_row[m] = ((o * stride[0] * H + p * stride[1]) * W + q * stride[2]) * C
        c_row[m] = pixel * K
    whole_rows = groups == 1 and dilation[2] == 1
    columns = 1 if whole_rows else S
    length = S * C if whole_rows else inputs
    a_tap = np.empty(F * R * columns, np.int64)
    b_tap = np.empty(F * R * columns, np.int64)
    for t in range(a_tap.shape[0]):
        f, r, s = t // (R * columns), t // columns % R, t % columns
        a_tap[t] = ((f * dilation[0] * H + r * dilation[1]) * W + s * dilation[2]) * C
        b_tap[t] = t * ((length + 1) // 2) * 2 * K
    flat_x, flat_y = x.reshape(-1), y.reshape(-1)
    begin = b if b.shape[0] > 0 else np.zeros(K, np.float32)
    filters = work[x.size :]
    pair_taps(w.reshape(-1), a_tap.shape[0], length, K, filters)
    for i in prange(n):
        round_row(flat_x, i * image, work, i * image, image)
        for m in range(0, pixels, HEIGHT):
            rows = min(HEIGHT, pixels - m)
            for g in range(groups):
                for k in range(0, outputs, WIDE):
                    bf16_tile(work, i * image + g * inputs, a_row, m, rows, a_tap, b_tap, length, 2,
                              filters, 2 * (g * outputs + k), 2 * K, flat_y, i * pixels * K + g * outputs + k, c_row,
                              min(WIDE, outputs - k), begin, g * outputs + k)  # fmt: skip


def backward_weights_work(x_shape, dy_shape) -> int:
    """Scratch of backward_weights: a chunk of images, each pixel twice, and dy with a column more for each line."""
    return 2 * math.prod(x_shape) + math.prod(dy_shape[:3]) * (dy_shape[3] + 1) * dy_shape[4]


@operation
def backward_weights(n, x, dy, dw, stride, dilation, groups, work):
    """`conv.backward_weights` of x and dy rounded to bfloat16."""
    conv.backward_weights(n, rounded(x[:n]), rounded(dy[:n]), dw, stride, dilation, groups)


@backward_weights.nest
def backward_weights_nest(n, x, dy, dw, stride, dilation, groups, work):
    D, H, W, C = x.shape[1], x.shape[2], x.shape[3], x.shape[4]
    R, S, inputs, K = dw.shape[1], dw.shape[2], dw.shape[3], dw.shape[4]
    P, Q = dy.shape[2], dy.shape[3]
    image, lines, outputs = D * H * W * C, dy.shape[1] * P, K // groups
    elements, pairs = dw.shape[0] * R * S * inputs, (Q + 1) // 2
    a_row = np.empty(elements + HEIGHT, np.int64)
    c_row = np.empty(elements + HEIGHT, np.int64)
    for m in range(a_row.shape[0]):
        element = min(m, elements - 1)
        place, c = element // inputs, element % inputs
        f, r, s = place // (R * S), place // S % R, place % S
        a_row[m] = 2 * (((f * dilation[0] * H + r * dilation[1]) * W + s * dilation[2]) * C + c)
        c_row[m] = element * K
    a_tap = np.empty(lines, np.int64)
    b_tap = np.empty(lines, np.int64)
    for t in range(lines):
        a_tap[t] = 2 * (t // P * stride[0] * H + t % P * stride[1]) * W * C
        b_tap[t] = t * pairs * 2 * K
    flat_x, flat_dy, flat_dw = x.reshape(-1), dy.reshape(-1), dw.reshape(-1)
    behind = min(stride[2] * C, image)
    gradients = work[2 * x.size :]
    for i in prange(n):
        pair_rows(flat_x, i * image, i * image + behind, work, 2 * i * image, image - behind)
        last = image - behind  # these have no pixel a stride behind them
        pair_rows(flat_x, i * image + last, -1, work, 2 * (i * image + last), behind)
        pair_taps(flat_dy[i * lines * Q * K :], lines, Q, K, gradients[i * lines * pairs * 2 * K :])
    zeros, go_on = np.zeros(WIDE, np.float32), np.empty(0, np.float32)
    # All tiles of a group pass over a few lines of dy and x before any goes on: these stay in the nearest cache.
    near = max(1, 2 * conv.NEAR // (Q * K))
    step = conv.BLOCKS * 2 * HEIGHT
    for group in prange((elements + step - 1) // step):
        first, last = group * step, min((group + 1) * step, elements)
        for i in range(n):
            for t in range(0, lines, near):
                end, start = min(t + near, lines), (go_on if i + t > 0 else zeros)
                for g in range(groups):
                    for k in range(g * outputs, (g + 1) * outputs, WIDE):
                        for m in range(first, last, HEIGHT):
                            bf16_tile(work, 2 * (i * image + g * inputs), a_row, m, min(HEIGHT, last - m),
                                      a_tap[t:end], b_tap[t:end], Q, 4 * stride[2] * C,
                                      gradients, 2 * (i * lines * pairs * K + k), 2 * K, flat_dw, k, c_row,
                                      min(WIDE, (g + 1) * outputs - k), start, 0)  # fmt: skip


def backward_data_work(dx_shape, dy_shape, w_shape, stride, padding, dilation) -> int:
    """Scratch of backward_data: a chunk of dy with a border of zeros, and w with a row more for each tap."""
    sizes, _ = borders(dx_shape, dy_shape, w_shape, stride, padding, dilation)
    return dx_shape[0] * math.prod(sizes) + math.prod(w_shape[:3]) * (w_shape[4] + 1) * dx_shape[4]


@operation
def backward_data(n, dy, w, dx, stride, padding, dilation, groups, work):
    """`conv.backward_data` of dy and w rounded to bfloat16; `work` is another's."""
    conv.backward_data(n, rounded(dy[:n]), rounded(w), dx, stride, padding, dilation, groups, None)


@backward_data.nest
def backward_data_nest(n, dy, w, dx, stride, padding, dilation, groups, work):
    C, K, inputs, outputs = dx.shape[4], w.shape[4], w.shape[3], w.shape[4] // groups
    P, Q = dy.shape[2], dy.shape[3]
    sizes, before = borders(dx.shape, dy.shape, w.shape, stride, padding, dilation)
    lines, image = dy.shape[1] * P, sizes[0] * sizes[1] * sizes[2] * K
    filters = work[dx.shape[0] * image :]
    flat_dy = dy.reshape(-1)
    for i in prange(n):
        work[i * image : (i + 1) * image] = 0
        for line in range(lines):
            place = ((line // P + before[0]) * sizes[1] + line % P + before[1]) * sizes[2] + before[2]
            round_row(flat_dy, (i * lines + line) * Q * K, work, i * image + place * K, Q * K)
    flat_dx, zeros = dx.reshape(-1), np.zeros(WIDE, np.float32)
    pixels_all = dx.shape[1] * dx.shape[2] * dx.shape[3]
    turned = np.empty(w.size, np.float32)
    a_row = np.empty(pixels_all + HEIGHT, np.int64)
    c_row = np.empty(pixels_all + HEIGHT, np.int64)
    a_tap = np.empty(w.shape[0] * w.shape[1] * w.shape[2], np.int64)
    b_tap = np.empty(w.shape[0] * w.shape[1] * w.shape[2], np.int64)
    for number in range(stride[0] * stride[1] * stride[2]):
        phase = number // (stride[1] * stride[2]), number // stride[2] % stride[1], number % stride[2]
        pixels = phase_rows(phase, dx.shape, sizes, stride, padding, before, a_row, c_row)
        used, length = phase_taps(phase, w, sizes, stride, dilation, groups, a_tap, turned)
        for t in range(used):
            b_tap[t] = t * ((length + 1) // 2) * 2 * C
        pair_taps(turned, used, length, C, filters)
        for i in prange(n):
            for m in range(0, pixels, HEIGHT):
                rows = min(HEIGHT, pixels - m)
                for g in range(groups):
                    for c in range(g * inputs, (g + 1) * inputs, WIDE):
                        bf16_tile(work, i * image + g * outputs, a_row, m, rows, a_tap[:used], b_tap[:used], length, 2,
                                  filters, 2 * c, 2 * C, flat_dx, i * pixels_all * C + c, c_row,
                                  min(WIDE, (g + 1) * inputs - c), zeros, 0)  # fmt: skip
