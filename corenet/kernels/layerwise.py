r"""Optimizers that scale each parameter's step by a trust ratio of norms: LARS and LAMB, in two passes over blocks.

    blocks (count, 3) int64: first element, last + 1, entry        An entry is one parameter array of the flat vector.
    starts (entries + 1,) int64: an entry's first block            No block holds elements of two entries.

    pass 1   each owner, its own blocks        sums[block] = sums of squares          partial_norms | lamb_moments
    ── all sums are there ──
    fold     everybody, all entries            ratios[entry], in block order          trust_ratios
    pass 2   each owner, its own blocks        new values                             lars | lamb

Blocks are fixed, their sums are double and are added in block order, so a norm has the same bits whoever owned which
block. `decays` (entries,) float64 is each entry's weight decay. As everywhere, old and new are different buffers.
"""

import numpy as np

from .operation import device, operation, prange

BLOCK = 1024  # elements, unless whoever owns them prefers another fixed number


@operation
def partial_norms(low, high, blocks, old, gradient, sums):
    """Σ old² and Σ gradient², each in double, of the blocks low … high into sums (count, 2) float64."""
    for b in range(low, high):
        part = slice(blocks[b, 0], blocks[b, 1])
        sums[b, 0] = np.square(old[part], dtype=np.float64).sum()
        sums[b, 1] = np.square(gradient[part], dtype=np.float64).sum()


@partial_norms.nest
def partial_norms_nest(low, high, blocks, old, gradient, sums):
    for b in prange(low, high):
        weights, gradients = 0.0, 0.0
        for j in range(blocks[b, 0], blocks[b, 1]):
            weights += np.float64(old[j]) * np.float64(old[j])
            gradients += np.float64(gradient[j]) * np.float64(gradient[j])
        sums[b, 0] = weights
        sums[b, 1] = gradients


@operation
def trust_ratios(n, starts, sums, decays, coefficients, ratios, eps):
    """Of n entries, ratios (n,) = coefficient · ‖w‖ / (‖g‖ + decay · ‖w‖ + eps), from the sums of their blocks.

    The ratio is 1 where one of the norms is 0 (nothing to compare), and where the coefficient is 0: such an entry, a
    bias perhaps, takes part without a ratio. All arrays but starts are float64.
    """
    for k in range(n):
        weights, directions = 0.0, 0.0
        for b in range(starts[k], starts[k + 1]):
            weights += sums[b, 0]
            directions += sums[b, 1]
        weights, directions = np.sqrt(weights), np.sqrt(directions)
        ratios[k] = 1.0
        if coefficients[k] != 0 and weights != 0 and directions != 0:
            ratios[k] = coefficients[k] * weights / (directions + decays[k] * weights + eps)


trust_ratios.nest(trust_ratios.reference)  # the definition is a loop already


@operation
def lars(low, high, blocks, old, new, gradient, old_velocity, new_velocity, decays, ratios, hyper):
    """LARS (You, Gitman & Ginsburg 2017) on the blocks low … high; hyper = (rate, momentum).

    velocity ← momentum · velocity + rate · ratio · (gradient + decay · w);  w ← w − velocity
    """
    momentum = old.dtype.type(hyper[1])
    for b in range(low, high):
        part, entry = slice(blocks[b, 0], blocks[b, 1]), blocks[b, 2]
        rate, decay = old.dtype.type(hyper[0] * ratios[entry]), old.dtype.type(decays[entry])
        new_velocity[part] = momentum * old_velocity[part] + rate * (gradient[part] + decay * old[part])
        new[part] = old[part] - new_velocity[part]


@lars.nest
def lars_nest(low, high, blocks, old, new, gradient, old_velocity, new_velocity, decays, ratios, hyper):
    momentum = np.float32(hyper[1])
    for b in prange(low, high):
        entry = blocks[b, 2]
        rate, decay = np.float32(hyper[0] * ratios[entry]), np.float32(decays[entry])
        for j in range(blocks[b, 0], blocks[b, 1]):
            velocity = momentum * old_velocity[j] + rate * (gradient[j] + decay * old[j])
            new_velocity[j] = velocity
            new[j] = old[j] - velocity


@device
def lamb_direction(weight, mean, square, decay, eps, correction1, correction2):
    """Adam's direction with decoupled decay; both passes of LAMB take it from here."""
    return (mean / correction1) / (np.sqrt(square / correction2) + eps) + decay * weight


@operation
def lamb_moments(low, high, blocks, old, gradient, old_mean, new_mean, old_square, new_square, decays, sums, hyper):
    """LAMB's first pass (You et al. 2020): the moments, and of each block Σ old² and Σ direction² into sums (count, 2).

    hyper = (rate, beta1, beta2, eps, 1 − beta1^t, 1 − beta2^t). The direction is not kept: `lamb` makes it again.
    """
    _, beta1, beta2, eps, correction1, correction2 = (old.dtype.type(number) for number in hyper)
    rest1, rest2 = (old.dtype.type(1 - beta) for beta in hyper[1:3])
    for b in range(low, high):
        part, decay = slice(blocks[b, 0], blocks[b, 1]), old.dtype.type(decays[blocks[b, 2]])
        new_mean[part] = beta1 * old_mean[part] + rest1 * gradient[part]
        new_square[part] = beta2 * old_square[part] + rest2 * gradient[part] * gradient[part]
        direction = lamb_direction(old[part], new_mean[part], new_square[part], decay, eps, correction1, correction2)
        sums[b, 0] = np.square(old[part], dtype=np.float64).sum()
        sums[b, 1] = np.square(direction, dtype=np.float64).sum()


@lamb_moments.nest
def lamb_moments_nest(
    low, high, blocks, old, gradient, old_mean, new_mean, old_square, new_square, decays, sums, hyper
):
    beta1, beta2, eps = np.float32(hyper[1]), np.float32(hyper[2]), np.float32(hyper[3])
    rest1, rest2 = np.float32(1 - hyper[1]), np.float32(1 - hyper[2])
    correction1, correction2 = np.float32(hyper[4]), np.float32(hyper[5])
    for b in prange(low, high):
        decay = np.float32(decays[blocks[b, 2]])
        weights, directions = 0.0, 0.0
        for j in range(blocks[b, 0], blocks[b, 1]):
            mean = beta1 * old_mean[j] + rest1 * gradient[j]
            square = beta2 * old_square[j] + rest2 * gradient[j] * gradient[j]
            new_mean[j] = mean
            new_square[j] = square
            direction = lamb_direction(old[j], mean, square, decay, eps, correction1, correction2)
            weights += np.float64(old[j]) * np.float64(old[j])
            directions += np.float64(direction) * np.float64(direction)
        sums[b, 0] = weights
        sums[b, 1] = directions


@operation
def lamb(low, high, blocks, old, new, mean, square, decays, ratios, hyper):
    """LAMB's second pass on the blocks low … high: w ← w − rate · ratio · direction, of the new moments."""
    _, _, _, eps, correction1, correction2 = (old.dtype.type(number) for number in hyper)
    for b in range(low, high):
        part, entry = slice(blocks[b, 0], blocks[b, 1]), blocks[b, 2]
        rate, decay = old.dtype.type(hyper[0] * ratios[entry]), old.dtype.type(decays[entry])
        direction = lamb_direction(old[part], mean[part], square[part], decay, eps, correction1, correction2)
        new[part] = old[part] - rate * direction


@lamb.nest
def lamb_nest(low, high, blocks, old, new, mean, square, decays, ratios, hyper):
    eps, correction1, correction2 = np.float32(hyper[3]), np.float32(hyper[4]), np.float32(hyper[5])
    for b in prange(low, high):
        entry = blocks[b, 2]
        rate, decay = np.float32(hyper[0] * ratios[entry]), np.float32(decays[entry])
        for j in range(blocks[b, 0], blocks[b, 1]):
            direction = lamb_direction(old[j], mean[j], square[j], decay, eps, correction1, correction2)
            new[j] = old[j] - rate * direction
