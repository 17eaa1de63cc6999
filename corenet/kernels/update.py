"""What optimizers do to each parameter: elementwise on the columns low … high of flat vectors.

The old values are read from one buffer and the new written to another, so a step that is interrupted can be done again.
`hyper` (float64) holds the numbers of this step, filled in by `corenet.optim`; formulas are PyTorch's. Nests go over
views that begin at `low`: Numba makes vectors only of loops whose indices begin at 0.
"""

import numpy as np

from .operation import operation, prange


@operation
def sgd(low, high, old, new, gradient, old_velocity, new_velocity, hyper):
    """SGD with momentum (Sutskever et al. 2013); hyper = (rate, momentum, weight decay, nesterov 0 or 1)."""
    part = slice(low, high)
    rate, momentum, decay, nesterov = (old.dtype.type(number) for number in hyper)
    direction = gradient[part] + decay * old[part]
    new_velocity[part] = momentum * old_velocity[part] + direction
    if nesterov:
        direction = direction + momentum * new_velocity[part]
    else:
        direction = new_velocity[part]
    new[part] = old[part] - rate * direction


@sgd.nest
def sgd_nest(low, high, old, new, gradient, old_velocity, new_velocity, hyper):
    rate, momentum = np.float32(hyper[0]), np.float32(hyper[1])
    decay, nesterov = np.float32(hyper[2]), hyper[3] > 0
    old, new, gradient = old[low:high], new[low:high], gradient[low:high]
    old_velocity, new_velocity = old_velocity[low:high], new_velocity[low:high]
    for j in prange(high - low):
        direction = gradient[j] + decay * old[j]
        velocity = momentum * old_velocity[j] + direction
        new_velocity[j] = velocity
        new[j] = old[j] - rate * (direction + momentum * velocity if nesterov else velocity)


@operation
def adam(low, high, old, new, gradient, old_mean, new_mean, old_square, new_square, hyper):
    """Adam (Kingma & Ba 2015); hyper = (rate, beta1, beta2, eps, weight decay, 1 − beta1^t, 1 − beta2^t).

    1 − beta is taken in double: of a float32 beta2 = 0.999 it would be wrong by 1e-5, and so would every step.
    """
    part = slice(low, high)
    rate, beta1, beta2, eps, decay, correction1, correction2 = (old.dtype.type(number) for number in hyper)
    rest1, rest2 = (old.dtype.type(1 - beta) for beta in hyper[1:3])
    direction = gradient[part] + decay * old[part]
    new_mean[part] = beta1 * old_mean[part] + rest1 * direction
    new_square[part] = beta2 * old_square[part] + rest2 * direction * direction
    denominator = np.sqrt(new_square[part] / correction2) + eps
    new[part] = old[part] - rate * (new_mean[part] / correction1) / denominator


@adam.nest
def adam_nest(low, high, old, new, gradient, old_mean, new_mean, old_square, new_square, hyper):
    rate, beta1, beta2 = np.float32(hyper[0]), np.float32(hyper[1]), np.float32(hyper[2])
    rest1, rest2 = np.float32(1 - hyper[1]), np.float32(1 - hyper[2])
    eps, decay = np.float32(hyper[3]), np.float32(hyper[4])
    correction1, correction2 = np.float32(hyper[5]), np.float32(hyper[6])
    old, new, gradient = old[low:high], new[low:high], gradient[low:high]
    old_mean, new_mean = old_mean[low:high], new_mean[low:high]
    old_square, new_square = old_square[low:high], new_square[low:high]
    for j in prange(high - low):
        direction = gradient[j] + decay * old[j]
        mean = beta1 * old_mean[j] + rest1 * direction
        square = beta2 * old_square[j] + rest2 * direction * direction
        new_mean[j] = mean
        new_square[j] = square
        new[j] = old[j] - rate * (mean / correction1) / (np.sqrt(square / correction2) + eps)


@operation
def adamw(low, high, old, new, gradient, old_mean, new_mean, old_square, new_square, hyper):
    """AdamW (Loshchilov & Hutter 2019): Adam whose weight decay, rate · decay · old, stays out of the moments.

    hyper as for `adam`. The decay is subtracted: 1 − rate · decay in float32 would be off by far more.
    """
    part = slice(low, high)
    rate, beta1, beta2, eps, _, correction1, correction2 = (old.dtype.type(number) for number in hyper)
    rest1, rest2 = (old.dtype.type(1 - beta) for beta in hyper[1:3])
    shrink = old.dtype.type(hyper[0] * hyper[4])
    new_mean[part] = beta1 * old_mean[part] + rest1 * gradient[part]
    new_square[part] = beta2 * old_square[part] + rest2 * gradient[part] * gradient[part]
    denominator = np.sqrt(new_square[part] / correction2) + eps
    new[part] = old[part] - (shrink * old[part] + rate * (new_mean[part] / correction1) / denominator)


@adamw.nest
def adamw_nest(low, high, old, new, gradient, old_mean, new_mean, old_square, new_square, hyper):
    rate, beta1, beta2 = np.float32(hyper[0]), np.float32(hyper[1]), np.float32(hyper[2])
    rest1, rest2 = np.float32(1 - hyper[1]), np.float32(1 - hyper[2])
    eps, shrink = np.float32(hyper[3]), np.float32(hyper[0] * hyper[4])
    correction1, correction2 = np.float32(hyper[5]), np.float32(hyper[6])
    old, new, gradient = old[low:high], new[low:high], gradient[low:high]
    old_mean, new_mean = old_mean[low:high], new_mean[low:high]
    old_square, new_square = old_square[low:high], new_square[low:high]
    for j in prange(high - low):
        mean = beta1 * old_mean[j] + rest1 * gradient[j]
        square = beta2 * old_square[j] + rest2 * gradient[j] * gradient[j]
        new_mean[j] = mean
        new_square[j] = square
        step = rate * (mean / correction1) / (np.sqrt(square / correction2) + eps)
        new[j] = old[j] - (shrink * old[j] + step)


@operation
def rmsprop(low, high, old, new, gradient, old_square, new_square, old_velocity, new_velocity, hyper):
    """RMSprop (Tieleman & Hinton 2012) with momentum; hyper = (rate, alpha, eps, weight decay, momentum)."""
    part = slice(low, high)
    rate, alpha, eps, decay, momentum = (old.dtype.type(number) for number in hyper)
    rest = old.dtype.type(1 - hyper[1])
    direction = gradient[part] + decay * old[part]
    new_square[part] = alpha * old_square[part] + rest * direction * direction
    new_velocity[part] = momentum * old_velocity[part] + direction / (np.sqrt(new_square[part]) + eps)
    new[part] = old[part] - rate * new_velocity[part]


@rmsprop.nest
def rmsprop_nest(low, high, old, new, gradient, old_square, new_square, old_velocity, new_velocity, hyper):
    rate, alpha, rest = np.float32(hyper[0]), np.float32(hyper[1]), np.float32(1 - hyper[1])
    eps, decay, momentum = np.float32(hyper[2]), np.float32(hyper[3]), np.float32(hyper[4])
    old, new, gradient = old[low:high], new[low:high], gradient[low:high]
    old_square, new_square = old_square[low:high], new_square[low:high]
    old_velocity, new_velocity = old_velocity[low:high], new_velocity[low:high]
    for j in prange(high - low):
        direction = gradient[j] + decay * old[j]
        square = alpha * old_square[j] + rest * direction * direction
        velocity = momentum * old_velocity[j] + direction / (np.sqrt(square) + eps)
        new_square[j] = square
        new_velocity[j] = velocity
        new[j] = old[j] - rate * velocity


@operation
def rmsprop_centered(
    low, high, old, new, gradient, old_square, new_square, old_velocity, new_velocity, old_mean, new_mean, hyper
):
    """RMSprop that divides by the gradient's standard deviation (Graves 2013); hyper as for `rmsprop`.

    The variance square − mean² is at least 0 but for rounding, after which it counts as 0.
    """
    part = slice(low, high)
    rate, alpha, eps, decay, momentum = (old.dtype.type(number) for number in hyper)
    rest = old.dtype.type(1 - hyper[1])
    direction = gradient[part] + decay * old[part]
    new_square[part] = alpha * old_square[part] + rest * direction * direction
    new_mean[part] = alpha * old_mean[part] + rest * direction
    variance = np.maximum(new_square[part] - new_mean[part] * new_mean[part], 0)
    new_velocity[part] = momentum * old_velocity[part] + direction / (np.sqrt(variance) + eps)
    new[part] = old[part] - rate * new_velocity[part]


@rmsprop_centered.nest
def rmsprop_centered_nest(
    low, high, old, new, gradient, old_square, new_square, old_velocity, new_velocity, old_mean, new_mean, hyper
):
    rate, alpha, rest = np.float32(hyper[0]), np.float32(hyper[1]), np.float32(1 - hyper[1])
    eps, decay, momentum = np.float32(hyper[2]), np.float32(hyper[3]), np.float32(hyper[4])
    old, new, gradient = old[low:high], new[low:high], gradient[low:high]
    old_square, new_square = old_square[low:high], new_square[low:high]
    old_velocity, new_velocity = old_velocity[low:high], new_velocity[low:high]
    old_mean, new_mean = old_mean[low:high], new_mean[low:high]
    for j in prange(high - low):
        direction = gradient[j] + decay * old[j]
        square = alpha * old_square[j] + rest * direction * direction
        mean = alpha * old_mean[j] + rest * direction
        variance = max(square - mean * mean, np.float32(0))
        velocity = momentum * old_velocity[j] + direction / (np.sqrt(variance) + eps)
        new_square[j] = square
        new_mean[j] = mean
        new_velocity[j] = velocity
        new[j] = old[j] - rate * velocity


@operation
def adagrad(low, high, old, new, gradient, old_sum, new_sum, hyper):
    """Adagrad (Duchi, Hazan & Singer 2011); hyper = (rate, eps, weight decay, what every sum of squares begins at)."""
    part = slice(low, high)
    rate, eps, decay, initial = (old.dtype.type(number) for number in hyper)
    direction = gradient[part] + decay * old[part]
    new_sum[part] = old_sum[part] + direction * direction
    new[part] = old[part] - rate * direction / (np.sqrt(initial + new_sum[part]) + eps)


@adagrad.nest
def adagrad_nest(low, high, old, new, gradient, old_sum, new_sum, hyper):
    rate, eps, decay, initial = np.float32(hyper[0]), np.float32(hyper[1]), np.float32(hyper[2]), np.float32(hyper[3])
    old, new, gradient = old[low:high], new[low:high], gradient[low:high]
    old_sum, new_sum = old_sum[low:high], new_sum[low:high]
    for j in prange(high - low):
        direction = gradient[j] + decay * old[j]
        total = old_sum[j] + direction * direction
        new_sum[j] = total
        new[j] = old[j] - rate * direction / (np.sqrt(initial + total) + eps)


@operation
def adadelta(low, high, old, new, gradient, old_square, new_square, old_change, new_change, hyper):
    """Adadelta (Zeiler 2012); hyper = (rate, rho, eps, weight decay); change: running mean of squared changes."""
    part = slice(low, high)
    rate, rho, eps, decay = (old.dtype.type(number) for number in hyper)
    rest = old.dtype.type(1 - hyper[1])
    direction = gradient[part] + decay * old[part]
    new_square[part] = rho * old_square[part] + rest * direction * direction
    change = np.sqrt(old_change[part] + eps) / np.sqrt(new_square[part] + eps) * direction
    new_change[part] = rho * old_change[part] + rest * change * change
    new[part] = old[part] - rate * change


@adadelta.nest
def adadelta_nest(low, high, old, new, gradient, old_square, new_square, old_change, new_change, hyper):
    rate, rho, rest = np.float32(hyper[0]), np.float32(hyper[1]), np.float32(1 - hyper[1])
    eps, decay = np.float32(hyper[2]), np.float32(hyper[3])
    old, new, gradient = old[low:high], new[low:high], gradient[low:high]
    old_square, new_square = old_square[low:high], new_square[low:high]
    old_change, new_change = old_change[low:high], new_change[low:high]
    for j in prange(high - low):
        direction = gradient[j] + decay * old[j]
        square = rho * old_square[j] + rest * direction * direction
        change = np.sqrt(old_change[j] + eps) / np.sqrt(square + eps) * direction
        new_square[j] = square
        new_change[j] = rho * old_change[j] + rest * change * change
        new[j] = old[j] - rate * change
