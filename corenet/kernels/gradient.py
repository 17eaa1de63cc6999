"""What is done to a gradient before, and to parameters after, the optimizer: clipping and averaging.

Elementwise on the elements low … high of flat vectors, like `update`; the gradient is changed in place.
"""

import numpy as np

from .operation import operation, prange


@operation
def clip(low, high, gradient, limit):
    """Cut every element to ±limit; NaN stays."""
    np.clip(gradient[low:high], -limit, limit, out=gradient[low:high])


@clip.nest
def clip_nest(low, high, gradient, limit):
    most = np.float32(limit)
    gradient = gradient[low:high]
    for j in prange(high - low):
        value = gradient[j]
        value = most if value > most else value
        gradient[j] = -most if value < -most else value


@operation
def clip_factor(n, sums, factor, limit):
    """factor (1,) = what scales a gradient of the norm √Σ sums[:n, 1] down to `limit`, at most 1; double."""
    total = 0.0
    for block in range(n):
        total += sums[block, 1]
    factor[0] = min(1.0, limit / (np.sqrt(total) + 1e-6))  # PyTorch's epsilon


clip_factor.nest(clip_factor.reference)  # the definition is a loop already


@operation
def scale(low, high, gradient, factor):
    """Multiply by factor (1,)."""
    gradient[low:high] *= gradient.dtype.type(factor[0])


@scale.nest
def scale_nest(low, high, gradient, factor):
    by = np.float32(factor[0])
    gradient = gradient[low:high]
    for j in prange(high - low):
        gradient[j] *= by


@operation
def average(low, high, parameters, old, new, decay):
    """new = decay · old + (1 − decay) · parameters: a running average of the weights."""
    keep, rest = parameters.dtype.type(decay), parameters.dtype.type(1 - decay)
    new[low:high] = keep * old[low:high] + rest * parameters[low:high]


@average.nest
def average_nest(low, high, parameters, old, new, decay):
    keep, rest = np.float32(decay), np.float32(1 - decay)
    parameters, old, new = parameters[low:high], old[low:high], new[low:high]
    for j in prange(high - low):
        new[j] = keep * old[j] + rest * parameters[j]
