"""Winograd's F(4×4, 3×3): 3×3 filters with a quarter of the multiplications. See `winograd.py`.

The points of interpolation are 0, ±1/√2, ±√2, ∞: half the rounding error of the usual 0, ±1, ±2, ∞ (Barabasz et al.
2020). Lines use that of a polynomial at a and −a the even terms are the same, and the odd ones but for their sign.
"""

import math

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


def adjoint_line(m):
    """B m: from six points to six gradients of an image."""
    sum_a, less_a, sum_b, less_b = m[1] + m[2], m[1] - m[2], m[3] + m[4], m[3] - m[4]
    return [
        1.0 * m[0],
        m[5] + (-2.0 * A) * less_a + (-0.5 * B) * less_b,
        -2.5 * m[0] + -2.0 * sum_a + -0.5 * sum_b,
        A * less_a + B * less_b + -2.5 * m[5],
        m[0] + sum_a + sum_b,
        1.0 * m[5],
    ]


data_patch = Patch(data_line, 6)
filter_patch = Patch(filter_line, 3)
output_patch = Patch(output_line, 6, adds="bias")
gradient_patch = Patch(gradient_line, 4)
weight_patch = Patch(weight_line, 6)
adjoint_patch = Patch(adjoint_line, 6, adds="target")
OUTPUTS, SIZE, LAST = 4, 6, 2  # m, m + r − 1, r − 1


@operation
def forward(n, x, w, b, y, top, left, work):
    """Convolve the first n images x (chunk, H, W, C) with w (3, 3, C, K), add b, into y: `winograd.convolution`.

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
    """Gradient dw (3, 3, C, K) of the first n samples; top and left as in forward."""
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
