"""Batch normalisation and the ReLU behind it, without a pass of its own for the ReLU, nor for the sum before it.

    y = max(0, normalised x)                    backward: where y > 0 is found anew from x, which is read anyway
    y = max(0, normalised x + shortcut)         backward: the gradient of the sum is `masked`, which others read, too

Steps that `fusion.py` puts in the place of those of `batchnorm.py` and `elementwise.py`, with the same bits.
"""

import numpy as np

from . import batchnorm, elementwise
from .batchnorm import WIDTH, add_images
from .operation import operation, prange
from .row_pass import RowPass, positive_part, where_positive
from .rows import folded, repeated, row_width


@RowPass
def rectified(x, mean, scale, shift):
    """To be kept: y."""
    return (positive_part((x - mean) * scale + shift),)


@RowPass
def rectified_sum(x, shortcut, mean, scale, shift):
    """To be kept: y."""
    return (positive_part((x - mean) * scale + shift + shortcut),)


@RowPass
def products(x, dy, mean, scale, shift):
    """To be summed: dy behind the normalisation, and that times x − mean."""
    dy = where_positive((x - mean) * scale + shift, dy)
    return dy, dy * (x - mean)


@RowPass
def masked_products(x, y, dy, mean):
    """To be kept: the gradient before the ReLU; to be summed: that, and that times x − mean."""
    dy = where_positive(y, dy)
    return dy, dy, dy * (x - mean)


@RowPass
def masked_products_of_two(x, y, dy, more, mean):
    """The same for a gradient that is a sum."""
    dy = where_positive(y, dy + more)
    return dy, dy, dy * (x - mean)


@RowPass
def gradients(x, dy, mean, scale, shift, slope, less):
    """To be kept: dx."""
    dy = where_positive((x - mean) * scale + shift, dy)
    return (scale * (dy - less - (x - mean) * slope),)


@operation
def normalise(n, x, gamma, beta, mean, rstd, y):
    """`batchnorm.normalise`, then the ReLU."""
    before = np.empty_like(x[:n])
    batchnorm.normalise(n, x, gamma, beta, mean, rstd, before)
    elementwise.relu_forward(n, before, y)


@normalise.nest
def normalise_nest(n, x, gamma, beta, mean, rstd, y):
    size, width = x.shape[1] * x.shape[2], row_width(x.shape[2], x.shape[1], WIDTH)
    numbers = repeated(mean, width), repeated(rstd * gamma, width), repeated(beta, width)
    for i in prange(n):
        rectified((x.reshape(-1),), i * size, size, numbers, (y.reshape(-1),), ())


@operation
def normalise_add(n, x, shortcut, gamma, beta, mean, rstd, y):
    """`batchnorm.normalise`, then the sum with `shortcut`, then the ReLU."""
    normalised, total = np.empty_like(x[:n]), np.empty_like(x[:n])
    batchnorm.normalise(n, x, gamma, beta, mean, rstd, normalised)
    elementwise.add(n, normalised, shortcut, total)
    elementwise.relu_forward(n, total, y)


@normalise_add.nest
def normalise_add_nest(n, x, shortcut, gamma, beta, mean, rstd, y):
    size, width = x.shape[1] * x.shape[2], row_width(x.shape[2], x.shape[1], WIDTH)
    numbers = repeated(mean, width), repeated(rstd * gamma, width), repeated(beta, width)
    for i in prange(n):
        rectified_sum((x.reshape(-1), shortcut.reshape(-1)), i * size, size, numbers, (y.reshape(-1),), ())


@operation
def measure_gradients(n, x, dy, gamma, beta, mean, rstd, dgamma, dbeta, means, work):
    """`batchnorm.measure_gradients` of dy behind the ReLU; means: None where the chunk's are not wanted."""
    y, before = np.empty_like(x[:n]), np.empty_like(x[:n])
    batchnorm.normalise(n, x, gamma, beta, mean, rstd, y)
    elementwise.relu_backward(n, y, dy, before)
    batchnorm.measure_gradients(n, x, before, mean, rstd, dgamma, dbeta, means, work)


@measure_gradients.nest
def measure_gradients_nest(n, x, dy, gamma, beta, mean, rstd, dgamma, dbeta, means, work):
    positions, C = x.shape[1], x.shape[2]
    size, width = positions * C, row_width(C, positions, WIDTH)
    numbers = repeated(mean, width), repeated(rstd * gamma, width), repeated(beta, width)
    for i in prange(n):
        sum_dy, sum_dy_x = np.zeros(width, x.dtype), np.zeros(width, x.dtype)
        products((x.reshape(-1), dy.reshape(-1)), i * size, size, numbers, (), (sum_dy, sum_dy_x))
        folded(sum_dy, work[i, :C])
        folded(sum_dy_x, work[i, C:])
    add_images(n, positions, rstd, dgamma, dbeta, means, work)


@operation
def measure_gradients_add(n, x, y, dy, more, mean, rstd, masked, dgamma, dbeta, means, work):
    """masked = dy + more where y > 0, else 0, and `batchnorm.measure_gradients` of that; more, means: or None."""
    total = dy
    if more is not None:
        total = np.empty_like(dy[:n])
        elementwise.add(n, dy, more, total)
    elementwise.relu_backward(n, y, total, masked)
    batchnorm.measure_gradients(n, x, masked, mean, rstd, dgamma, dbeta, means, work)


@measure_gradients_add.nest
def measure_gradients_add_nest(n, x, y, dy, more, mean, rstd, masked, dgamma, dbeta, means, work):
    positions, C = x.shape[1], x.shape[2]
    size, width = positions * C, row_width(C, positions, WIDTH)
    flat_x, flat_y, flat_dy, kept = x.reshape(-1), y.reshape(-1), dy.reshape(-1), masked.reshape(-1)
    numbers = (repeated(mean, width),)
    for i in prange(n):
        sums = np.zeros(width, x.dtype), np.zeros(width, x.dtype)
        if more is None:
            masked_products((flat_x, flat_y, flat_dy), i * size, size, numbers, (kept,), sums)
        else:
            arrays = flat_x, flat_y, flat_dy, more.reshape(-1)
            masked_products_of_two(arrays, i * size, size, numbers, (kept,), sums)
        folded(sums[0], work[i, :C])
        folded(sums[1], work[i, C:])
    add_images(n, positions, rstd, dgamma, dbeta, means, work)


@operation
def backward(n, x, dy, gamma, beta, mean, rstd, means, dx):
    """`batchnorm.backward` of dy behind the ReLU."""
    y, before = np.empty_like(x[:n]), np.empty_like(x[:n])
    batchnorm.normalise(n, x, gamma, beta, mean, rstd, y)
    elementwise.relu_backward(n, y, dy, before)
    batchnorm.backward(n, x, before, gamma, mean, rstd, means, dx)


@backward.nest
def backward_nest(n, x, dy, gamma, beta, mean, rstd, means, dx):
    size, width = x.shape[1] * x.shape[2], row_width(x.shape[2], x.shape[1], WIDTH)
    numbers = (
        repeated(mean, width), repeated(rstd * gamma, width), repeated(beta, width),
        repeated(rstd * means[1], width), repeated(means[0], width),
    )  # fmt: skip
    for i in prange(n):
        gradients((x.reshape(-1), dy.reshape(-1)), i * size, size, numbers, (dx.reshape(-1),), ())
