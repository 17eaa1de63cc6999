"""Depthwise convolution: every channel has a filter of its own (groups = input channels = output channels).

The definitions are those of `conv.py`, whose tile would have one column per group; here the channels are the vector:
loops over pixels and filter elements with the channels innermost. Arguments are conv's: w is (F, R, S, 1, C).
"""

import numpy as np

from . import conv
from .operation import device, operation, prange


@operation
def forward(n, x, w, b, y, stride, dilation, groups):
    """Convolve the first n padded images of x with w, add b (shape (0,): no bias), into y."""
    conv.forward(n, x, w, b, y, stride, dilation, groups)


@forward.nest
def forward_nest(n, x, w, b, y, stride, dilation, groups):
    Q, C = y.shape[3], y.shape[4]
    for i in prange(n):
        for o in range(y.shape[1]):
            for p in range(y.shape[2]):
                out = y[i, o, p]
                for q in range(Q):
                    for c in range(C):
                        out[q, c] = b[c] if b.shape[0] > 0 else np.float32(0)
                for f in range(w.shape[0]):
                    for r in range(w.shape[1]):
                        line = x[i, o * stride[0] + f * dilation[0], p * stride[1] + r * dilation[1]]
                        for s in range(w.shape[2]):
                            taps = w[f, r, s, 0]
                            for q in range(Q):
                                v = q * stride[2] + s * dilation[2]
                                for c in range(C):
                                    out[q, c] += line[v, c] * taps[c]


@operation
def backward_weights(n, x, dy, dw, stride, dilation, groups):
    """Gradient dw (F, R, S, 1, C) of the first n samples, from padded images x and dy."""
    conv.backward_weights(n, x, dy, dw, stride, dilation, groups)


@backward_weights.nest
def backward_weights_nest(n, x, dy, dw, stride, dilation, groups):
    F, R, S, C = dw.shape[0], dw.shape[1], dw.shape[2], x.shape[4]
    for place in prange(F * R * S):
        f, r, s = place // (R * S), place // S % R, place % S
        taps = dw[f, r, s, 0]
        taps[:] = 0
        for i in range(n):
            for o in range(dy.shape[1]):
                for p in range(dy.shape[2]):
                    line = x[i, o * stride[0] + f * dilation[0], p * stride[1] + r * dilation[1]]
                    out = dy[i, o, p]
                    for q in range(dy.shape[3]):
                        v = q * stride[2] + s * dilation[2]
                        for c in range(C):
                            taps[c] += line[v, c] * out[q, c]


def backward_data_work(dx_shape, dy_shape, w_shape, stride, padding, dilation) -> int:
    """Floats of scratch that backward_data needs: none."""
    return 0


@device
def _inside(size, outputs, offset, stride):
    """First and last (exclusive) output whose pixel, output·stride + offset, lies inside an image of that size."""
    return max(0, -(offset // stride)), min(outputs, (size - 1 - offset) // stride + 1)


@operation
def backward_data(n, dy, w, dx, stride, padding, dilation, groups, work):
    """Gradient dx of the first n images before padding, from dy and w."""
    conv.backward_data(n, dy, w, dx, stride, padding, dilation, groups, work)


@backward_data.nest
def backward_data_nest(n, dy, w, dx, stride, padding, dilation, groups, work):
    D, H, W, C = dx.shape[1:]
    for i in prange(n):
        dx[i] = 0
        for f in range(w.shape[0]):
            d0 = f * dilation[0] - padding[0]
            first_o, last_o = _inside(D, dy.shape[1], d0, stride[0])
            for r in range(w.shape[1]):
                h0 = r * dilation[1] - padding[1]
                first_p, last_p = _inside(H, dy.shape[2], h0, stride[1])
                for s in range(w.shape[2]):
                    v0 = s * dilation[2] - padding[2]
                    first_q, last_q = _inside(W, dy.shape[3], v0, stride[2])
                    taps = w[f, r, s, 0]
                    for o in range(first_o, last_o):
                        for p in range(first_p, last_p):
                            line, out = dx[i, o * stride[0] + d0, p * stride[1] + h0], dy[i, o, p]
                            for q in range(first_q, last_q):
                                v = q * stride[2] + v0
                                for c in range(C):
                                    line[v, c] += out[q, c] * taps[c]
