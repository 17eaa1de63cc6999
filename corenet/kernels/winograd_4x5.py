"""Winograd's F(4×4, 5×5): 5×5 filters with 64 in place of 400 multiplications. See `winograd.py`.

The points of interpolation are 0, ±1/2, ±1, ±2, ∞: of all 0, ±a, ±b, ±c, ∞ those of the least rounding error. Lines use
that of a polynomial at a and −a the even terms are the same, and the odd ones but for their sign.
"""

import numpy as np

from .operation import operation, prange
from .patch import Patch
from .winograd import (
    BLOCK,
    PART,
    add_products,
    convolution,
    convolve,
    data_gradient,
    data_points,
    filter_points,
    gradient_memory,
    gradient_points,
    patches_together,
    places_of,
    spread,
    swapped,
    weight_gradient,
    weights_from,
)

FA, FB, FC = 32 / 45, -2 / 9, 1 / 90  # at ±1/2, ±1, ±2: one over what the other points leave


def data_line(x):
    """Bᵀ x: eight values of an image."""
    even_a, odd_a = x[6] + -5.0 * x[4] + 4.0 * x[2], x[5] + -5.0 * x[3] + 4.0 * x[1]
    even_b, odd_b = x[6] + x[2] + -4.25 * x[4], x[5] + x[1] + -4.25 * x[3]
    even_c, odd_c = x[6] + -1.25 * x[4] + 0.25 * x[2], x[5] + -1.25 * x[3] + 0.25 * x[1]
    return [
        x[0] - x[6] + 5.25 * (x[4] - x[2]),
        even_a + 0.5 * odd_a,
        even_a + -0.5 * odd_a,
        even_b + odd_b,
        even_b - odd_b,
        even_c + 2.0 * odd_c,
        even_c + -2.0 * odd_c,
        x[7] - x[1] + 5.25 * (x[3] - x[5]),
    ]


def filter_line(w):
    """G w: the five values of a filter, each point divided by what the others leave."""
    even_a, odd_a = FA * w[0] + (FA / 4) * w[2] + (FA / 16) * w[4], (FA / 2) * w[1] + (FA / 8) * w[3]
    even_b, odd_b = FB * (w[0] + w[2] + w[4]), FB * (w[1] + w[3])
    even_c, odd_c = FC * w[0] + (FC * 4) * w[2] + (FC * 16) * w[4], (FC * 2) * w[1] + (FC * 8) * w[3]
    return [1.0 * w[0], even_a + odd_a, even_a - odd_a, even_b + odd_b, even_b - odd_b, even_c + odd_c, even_c - odd_c,
            1.0 * w[4]]  # fmt: skip


def output_line(m):
    """Aᵀ m: from eight points to four values."""
    sum_a, sum_b, sum_c = m[1] + m[2], m[3] + m[4], m[5] + m[6]
    less_a, less_b, less_c = m[1] - m[2], m[3] - m[4], m[5] - m[6]
    return [
        m[0] + sum_a + sum_b + sum_c,
        less_b + 0.5 * less_a + 2.0 * less_c,
        sum_b + 0.25 * sum_a + 4.0 * sum_c,
        less_b + 0.125 * less_a + 8.0 * less_c + m[7],
    ]


def gradient_line(dy):
    """A dy: four gradients of an output, to eight points."""
    even_a, odd_a = dy[0] + 0.25 * dy[2], 0.5 * dy[1] + 0.125 * dy[3]
    even_b, odd_b = dy[0] + dy[2], dy[1] + dy[3]
    even_c, odd_c = dy[0] + 4.0 * dy[2], 2.0 * dy[1] + 8.0 * dy[3]
    return [1.0 * dy[0], even_a + odd_a, even_a - odd_a, even_b + odd_b, even_b - odd_b, even_c + odd_c, even_c - odd_c,
            1.0 * dy[3]]  # fmt: skip


def weight_line(u):
    """Gᵀ u: from eight points to the five values of a filter."""
    sum_a, less_a = FA * u[1] + FA * u[2], FA * u[1] - FA * u[2]
    sum_b, less_b = FB * u[3] + FB * u[4], FB * u[3] - FB * u[4]
    sum_c, less_c = FC * u[5] + FC * u[6], FC * u[5] - FC * u[6]
    return [
        u[0] + sum_a + sum_b + sum_c,
        less_b + 0.5 * less_a + 2.0 * less_c,
        sum_b + 0.25 * sum_a + 4.0 * sum_c,
        less_b + 0.125 * less_a + 8.0 * less_c,
        sum_b + 0.0625 * sum_a + 16.0 * sum_c + u[7],
    ]


def adjoint_line(m):
    """B m: from eight points to eight gradients of an image."""
    sum_a, sum_b, sum_c = m[1] + m[2], m[3] + m[4], m[5] + m[6]
    less_a, less_b, less_c = m[1] - m[2], m[3] - m[4], m[5] - m[6]
    return [
        1.0 * m[0],
        less_b - m[7] + 2.0 * less_a + 0.5 * less_c,
        sum_b + 4.0 * sum_a + 0.25 * sum_c + -5.25 * m[0],
        5.25 * m[7] + -4.25 * less_b + -2.5 * (less_a + less_c),
        5.25 * m[0] + -5.0 * sum_a + -4.25 * sum_b + -1.25 * sum_c,
        less_b + 0.5 * less_a + 2.0 * less_c + -5.25 * m[7],
        sum_a + sum_b + sum_c - m[0],
        1.0 * m[7],
    ]


data_patch = Patch(data_line, 8)
filter_patch = Patch(filter_line, 5)
output_patch = Patch(output_line, 8, adds="bias")
gradient_patch = Patch(gradient_line, 4)
weight_patch = Patch(weight_line, 8)
adjoint_patch = Patch(adjoint_line, 8, adds="target")
OUTPUTS, SIZE, LAST = 4, 8, 4  # m, m + r − 1, r − 1


@operation
def forward(n, x, w, b, y, top, left, work):
    """Convolve the first n images x (chunk, H, W, C) with w (5, 5, C, K), add b, into y: `winograd.convolution`.

    `work` is scratch, here and below: filters_work, weights_work.
    """
    convolution(data_patch, filter_patch, output_patch, x[:n], w, b, y[:n], top, left)


@forward.nest
def forward_nest(n, x, w, b, y, top, left, work):
    u, places = filter_points(filter_patch, w, SIZE, work), places_of(n, y, OUTPUTS)
    for block in prange((places.shape[0] + BLOCK - 1) // BLOCK):
        convolve(data_patch, output_patch, places, block, OUTPUTS, SIZE, x, u, b, y, top, left)


@operation
def backward_data(n, dy, w, dx, top, left, work):
    """Gradient dx (chunk, H, W, C) of the first n images, from dy (chunk, P, Q, K); top and left as in forward."""
    turn, none = np.ascontiguousarray(w[::-1, ::-1].swapaxes(2, 3)), np.zeros(0, dy.dtype)
    convolution(data_patch, filter_patch, output_patch, dy[:n], turn, none, dx[:n], LAST - top, LAST - left)


@backward_data.nest
def backward_data_nest(n, dy, w, dx, top, left, work):
    u, places = filter_points(filter_patch, swapped(w, True, work), SIZE, work), places_of(n, dx, OUTPUTS)
    none = np.empty(0, np.float32)
    for block in prange((places.shape[0] + BLOCK - 1) // BLOCK):
        convolve(data_patch, output_patch, places, block, OUTPUTS, SIZE, dy, u, none, dx, LAST - top, LAST - left)


@operation
def backward_data_adjoint(n, dy, w, dx, top, left, work):
    """What backward_data computes, from the patches of dy: fewer, where dx is larger."""
    data_gradient(gradient_patch, filter_patch, adjoint_patch, dy[:n], w, dx[:n], top, left)


@backward_data_adjoint.nest
def backward_data_adjoint_nest(n, dy, w, dx, top, left, work):
    u, places = filter_points(filter_patch, swapped(w, False, work), SIZE, work), places_of(n, dy, OUTPUTS)
    together = patches_together(n, places)
    for group in prange((places.shape[0] + together - 1) // together):
        spread(gradient_patch, adjoint_patch, places, group, together, OUTPUTS, SIZE, dy, u, dx, top, left)


@operation
def backward_weights(n, x, dy, dw, top, left, work):
    """Gradient dw (5, 5, C, K) of the first n samples; top and left as in forward."""
    weight_gradient(data_patch, gradient_patch, weight_patch, x[:n], dy[:n], dw, top, left)


@backward_weights.nest
def backward_weights_nest(n, x, dy, dw, top, left, work):
    C, K, places = x.shape[3], dy.shape[3], places_of(n, dy, OUTPUTS)
    v, g, du, tables = gradient_memory(SIZE, C, K, work)
    # Blocks come one after the other, so that every sum is one chain; threads share a block's patches, then its points.
    for first in range(0, places.shape[0], BLOCK):
        count = min(BLOCK, places.shape[0] - first)
        for part in prange((count + PART - 1) // PART):
            begin, end = first + part * PART, first + min(part * PART + PART, count)
            data_points(data_patch, places, first, begin, end, SIZE, x, top, left, v)
            gradient_points(gradient_patch, places, first, begin, end, OUTPUTS, SIZE, dy, g)
        for part in prange(SIZE * SIZE // PART):
            add_products(part * PART, part * PART + PART, first, count, v, g, du, C, K, tables)
    for c in prange(C):
        weights_from(weight_patch, c, SIZE, du, dw)
