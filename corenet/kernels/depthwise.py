"""Depthwise convolution: every channel has a filter of its own (groups = input channels = output channels).

The definitions are those of `conv.py`, whose tile would have one column per group; here the channels are the vector
(`channel_tile.py`). Arguments are conv's: w is (F, R, S, 1, C). The gradient of an image is gathered: each of its
pixels is the sum over those filter elements that reached it, so nothing is padded, and nothing is multiplied by the
zeros of a dilated dy.
"""

import numpy as np

from . import conv
from .channel_tile import channel_sums, channel_tile
from .operation import device, operation, prange
from .tile import LANES

TAPS = 9  # filter elements whose gradients are made together: those of 3×3


@operation
def forward(n, x, w, b, y, stride, dilation, groups):
    """Convolve the first n padded images of x with w, add b (shape (0,): no bias), into y."""
    conv.forward(n, x, w, b, y, stride, dilation, groups)


@forward.nest
def forward_nest(n, x, w, b, y, stride, dilation, groups):
    D, H, W, C = x.shape[1], x.shape[2], x.shape[3], x.shape[4]
    O, P, Q = y.shape[1], y.shape[2], y.shape[3]  # noqa: E741
    R, S = w.shape[1], w.shape[2]
    lines = w.shape[0] * R
    x_line, w_line = np.empty(lines, np.int64), np.empty(lines, np.int64)
    for m in range(lines):
        x_line[m], w_line[m] = (m // R * dilation[0] * H + m % R * dilation[1]) * W * C, m * S * C
    begin = b if b.shape[0] > 0 else np.zeros(C, np.float32)
    flat_x, flat_w, flat_y = x.reshape(-1), w.reshape(-1), y.reshape(-1)
    for line in prange(n * O * P):
        i, o, p = line // (O * P), line // P % O, line % P
        x0 = ((i * D + o * stride[0]) * H + p * stride[1]) * W * C
        for c in range(0, C, LANES):
            channel_tile(flat_x, x0 + c, stride[2] * C, x_line, flat_w, c, w_line, 0, lines, S, dilation[2] * C, C,
                         flat_y, line * Q * C + c, C, Q, min(LANES, C - c), begin, c)  # fmt: skip


@operation
def backward_weights(n, x, dy, dw, stride, dilation, groups):
    """Gradient dw (F, R, S, 1, C) of the first n samples, from padded images x and dy."""
    conv.backward_weights(n, x, dy, dw, stride, dilation, groups)


@backward_weights.nest
def backward_weights_nest(n, x, dy, dw, stride, dilation, groups):
    D, H, W, C = x.shape[1], x.shape[2], x.shape[3], x.shape[4]
    O, P, Q = dy.shape[1], dy.shape[2], dy.shape[3]  # noqa: E741
    R, S = dw.shape[1], dw.shape[2]
    taps = dw.shape[0] * R * S
    x_tap = np.empty(taps, np.int64)
    for m in range(taps):
        f, r, s = m // (R * S), m // S % R, m % S
        x_tap[m] = ((f * dilation[0] * H + r * dilation[1]) * W + s * dilation[2]) * C
    flat_x, flat_dy, flat_dw = x.reshape(-1), dy.reshape(-1), dw.reshape(-1)
    dw[:] = 0
    groups_of_taps = (taps + TAPS - 1) // TAPS
    for part in prange((C + LANES - 1) // LANES * groups_of_taps):
        c, m = part // groups_of_taps * LANES, part % groups_of_taps * TAPS
        for plane in range(n * O):
            x0 = (plane // O * D + plane % O * stride[0]) * H * W * C
            channel_sums(flat_x, x0 + c, stride[1] * W * C, stride[2] * C, x_tap,
                         flat_dy, plane * P * Q * C + c, Q * C, C, P, Q,
                         flat_dw, m * C + c, C, m, min(TAPS, taps - m), min(LANES, C - c))  # fmt: skip


def backward_data_work(dx_shape, dy_shape, w_shape, stride, padding, dilation) -> int:
    """Floats of scratch that backward_data needs: none."""
    return 0


@device
def _reached_by(position, padding, dilation, stride, size, outputs):
    """Which of `size` filter elements have multiplied this position of an image: the first, the distance to the next,
    how many; and the output of the first. Outputs fall as elements rise: `step` elements are `dilation·step/stride`
    outputs."""
    first, step, count, output = 0, 1, 0, 0
    for s in range(size):
        place = position + padding - s * dilation
        if place >= 0 and place % stride == 0 and place // stride < outputs:
            if count == 0:
                first, output = s, place // stride
            elif count == 1:
                step = s - first
            count += 1
    return first, step, count, output


@operation
def backward_data(n, dy, w, dx, stride, padding, dilation, groups, work):
    """Gradient dx of the first n images before padding, from dy and w."""
    conv.backward_data(n, dy, w, dx, stride, padding, dilation, groups, work)


@backward_data.nest
def backward_data_nest(n, dy, w, dx, stride, padding, dilation, groups, work):
    D, H, W, C = dx.shape[1], dx.shape[2], dx.shape[3], dx.shape[4]
    O, P, Q = dy.shape[1], dy.shape[2], dy.shape[3]  # noqa: E741
    F, R, S = w.shape[0], w.shape[1], w.shape[2]
    # For each line of an image: the lines of dy and w that it is a sum of.
    lines = np.zeros(D * H, np.int64)
    dy_line, w_line = np.empty(D * H * F * R, np.int64), np.empty(D * H * F * R, np.int64)
    for line in range(D * H):
        f, f_step, f_count, o = _reached_by(line // H, padding[0], dilation[0], stride[0], F, O)
        r, r_step, r_count, p = _reached_by(line % H, padding[1], dilation[1], stride[1], R, P)
        for e in range(f_count * r_count):
            a, b = e // r_count, e % r_count
            place = (o - a * f_step * dilation[0] // stride[0]) * P + p - b * r_step * dilation[1] // stride[1]
            dy_line[line * F * R + e] = place * Q * C
            w_line[line * F * R + e] = ((f + a * f_step) * R + r + b * r_step) * S * C
        lines[line] = f_count * r_count
    # Along a line: runs of pixels, `stride` apart, that are sums of the same elements.
    run = np.zeros((W, 6), np.int64)  # first pixel, pixels; first element, the next, how many; output
    runs = 0
    for phase in range(min(stride[2], W)):
        for v in range(phase, W, stride[2]):
            s, s_step, s_count, q = _reached_by(v, padding[2], dilation[2], stride[2], S, Q)
            if v > phase and run[runs - 1, 2] == s and run[runs - 1, 4] == s_count:
                run[runs - 1, 1] += 1
            else:
                run[runs, 0], run[runs, 1], run[runs, 2] = v, 1, s
                run[runs, 3], run[runs, 4], run[runs, 5] = s_step, s_count, q
                runs += 1
    zeros = np.zeros(LANES, np.float32)
    flat_dy, flat_w, flat_dx = dy.reshape(-1), w.reshape(-1), dx.reshape(-1)
    for place in prange(n * D * H):
        i, line = place // (D * H), place % (D * H)
        for c in range(0, C, LANES):
            for e in range(runs):
                v, pixels, s, s_step, s_count, q = run[e, 0], run[e, 1], run[e, 2], run[e, 3], run[e, 4], run[e, 5]
                channel_tile(flat_dy, (i * O * P * Q + q) * C + c, C, dy_line, flat_w, s * C + c, w_line,
                             line * F * R, lines[line], s_count, -s_step * dilation[2] // stride[2] * C, s_step * C,
                             flat_dx, (place * W + v) * C + c, stride[2] * C, pixels, min(LANES, C - c),
                             zeros, 0)  # fmt: skip
