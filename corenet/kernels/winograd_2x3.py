"""Winograd's F(2×2, 3×3): 3×3 filters with 16 in place of 36 multiplications. See `winograd.py`.

The points of interpolation are 0, ±1, ∞: no factor is rounded, and the error is about that of a direct convolution.
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


def data_line(x):
    """Bᵀ x: four values of an image."""
    return [x[0] - x[2], x[2] + x[1], x[2] - x[1], x[3] - x[1]]


def filter_line(w):
    """G w: the three values of a filter, each point divided by what the others leave."""
    even, odd = 0.5 * w[0] + 0.5 * w[2], 0.5 * w[1]
    return [1.0 * w[0], even + odd, even - odd, 1.0 * w[2]]


def output_line(m):
    """Aᵀ m: from four points to two values."""
    return [m[0] + m[1] + m[2], m[1] - m[2] + m[3]]


def gradient_line(dy):
    """A dy: two gradients of an output, to four points."""
    return [1.0 * dy[0], dy[0] + dy[1], dy[0] - dy[1], 1.0 * dy[1]]


def weight_line(u):
    """Gᵀ u: from four points to the three values of a filter."""
    half = 0.5 * u[1] + 0.5 * u[2]
    return [u[0] + half, 0.5 * u[1] - 0.5 * u[2], half + u[3]]


def adjoint_line(m):
    """B m: from four points to four gradients of an image."""
    return [1.0 * m[0], m[1] - m[2] - m[3], m[1] + m[2] - m[0], 1.0 * m[3]]


data_patch = Patch(data_line, 4)
filter_patch = Patch(filter_line, 3)
output_patch = Patch(output_line, 4, adds="bias")
gradient_patch = Patch(gradient_line, 2)
weight_patch = Patch(weight_line, 4)
adjoint_patch = Patch(adjoint_line, 4, adds="target")
OUTPUTS, SIZE, LAST = 2, 4, 2  # m, m + r − 1, r − 1


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
