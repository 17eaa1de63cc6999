"""What optimizers do to each parameter: elementwise on the columns low … high of flat vectors.

The old values are read from one buffer and the new written to another, so a step that is interrupted can be done again.
`hyper` (float64) holds the numbers of this step, filled in by `corenet.optim`; formulas are PyTorch's.
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
    for j in prange(low, high):
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
    for j in prange(low, high):
        direction = gradient[j] + decay * old[j]
        mean = beta1 * old_mean[j] + rest1 * direction
        square = beta2 * old_square[j] + rest2 * direction * direction
        new_mean[j] = mean
        new_square[j] = square
        new[j] = old[j] - rate * (mean / correction1) / (np.sqrt(square / correction2) + eps)
