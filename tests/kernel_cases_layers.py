"""Cases of the operations behind activations, normalisation within a sample, resampling and whole channels."""

import numpy as np
from kernel_cases import Case, clock

from corenet.kernels import activation, channels, dropout2d, global_max, groupnorm, resize, response_norm

# At 0, where derivatives may jump, beyond every threshold, and not a number; the largest of each sets the tolerance.
EXTREME = [[0.0, -0.0, 1e-30, -1e-30], [30.0, -30.0, 88.0, -88.0, np.nan], [1e4, -1e4], [1e30, -1e30]]


def activation_cases(rng):
    normal, dy, y = (rng.standard_normal((5, 37)) * 3 for _ in range(3))
    extreme = np.array([[value for values in EXTREME for value in values]])
    unit = rng.random((5, 37))
    for forward, backward, *settings in [
        (activation.leaky_relu_forward, activation.leaky_relu_backward, 0.01),
        (activation.elu_forward, activation.elu_backward, 1.7),
        (activation.gelu_forward, activation.gelu_backward, False),
        (activation.gelu_forward, activation.gelu_backward, True),
        (activation.silu_forward, activation.silu_backward),
    ]:
        label = ", ".join(map(str, settings))
        yield Case(forward, [4, normal, y, *settings], [2], 1, label)
        yield Case(backward, [4, normal, dy, y, *settings], [3], 4, label)
        for values in EXTREME:
            x, ones, at = np.array([values]), np.ones((1, len(values))), f"{label} at {values[0]}"
            yield Case(forward, [1, x, 0 * ones, *settings], [2], 1, at)
            yield Case(backward, [1, x, ones, 0 * ones, *settings], [3], 1, at)
    yield Case(activation.sigmoid_forward, [4, normal, y], [2])
    yield Case(activation.sigmoid_forward, [1, extreme, np.zeros_like(extreme)], [2], 1, "extreme")
    yield Case(activation.sigmoid_backward, [4, unit, dy, y], [3])
    yield Case(activation.tanh_forward, [4, normal, y], [2])
    yield Case(activation.tanh_forward, [1, extreme, np.zeros_like(extreme)], [2], 1, "extreme")
    yield Case(activation.tanh_backward, [4, 2 * unit - 1, dy, y], [3])
    for shape in [(3, 4, 7), (3, 1, 1), (3, 2, 100)]:
        x, dy = rng.standard_normal(shape) * 4, rng.standard_normal(shape)
        y = np.zeros(shape)
        activation.softmax_forward(3, x, y)
        yield Case(activation.softmax_forward, [2, x, np.zeros(shape)], [2], shape[2], str(shape))
        # What is left of dy after its mean is taken has lost a few bits.
        yield Case(activation.softmax_backward, [2, y, dy, np.zeros(shape)], [3], 50 * shape[2], str(shape))
    for logits in ([-1047, -981, 1891], [0, 0, 100], [0, 100, 0], [1e4, -1e4, 1e4], [np.nan, 0, 1], [0, 1, np.nan]):
        x = np.array([[logits, [1, 2, 3]]], float)
        yield Case(activation.softmax_forward, [1, x, np.zeros_like(x)], [2], 3, str(logits))


def normalisation_cases(rng):
    for chunk, n, rows, positions, C, groups, affine in [
        (4, 3, 1, 20, 6, 2, True),
        (3, 2, 1, 9, 8, 8, True),  # instance norm
        (3, 2, 1, 9, 8, 1, False),
        (3, 3, 5, 1, 7, 1, True),  # layer norm of each pixel
        (3, 2, 1, 1, 60, 1, True),  # of whole samples
        (2, 1, 5, 1, 7, 1, False),
        (2, 2, 3, 4, 6, 3, True),  # neither
    ]:
        shape = chunk, rows, positions, C
        x, dy = rng.standard_normal(shape) * 3 + 20, rng.standard_normal(shape)
        gamma, beta = (rng.standard_normal(C if affine else 0) for _ in range(2))
        y, dgamma, dbeta = np.zeros(shape), np.zeros_like(gamma), np.zeros_like(beta)
        mean, rstd = np.zeros((chunk, rows, groups)), np.zeros((chunk, rows, groups))
        label, count = f"{n}/{shape} in {groups}{'' if affine else ' plain'}", positions * C // groups
        args = [n, x, gamma, beta, y, mean, rstd, np.zeros((chunk, 4 * C)), 0.3]
        # x is far from 0: what is left of it after its mean is taken has lost a few bits.
        yield Case(groupnorm.forward, args, [4, 5, 6], 100 * count, label, scratch=[7])
        groupnorm.forward(chunk, x, gamma, beta, y.copy(), mean, rstd, np.zeros((chunk, 4 * C)), 0.3)
        args = [n, x, dy, gamma, mean, rstd, y, dgamma, dbeta, np.zeros((chunk, 7 * C))]
        terms = 10 * n * rows * positions + count
        # dgamma and dbeta are whole-chunk sums, dx is per sample.
        yield Case(groupnorm.backward, args, [6, 7, 8], terms, label, per_sample=False, scratch=[9])
        args = [*args[:6], None, *args[7:]]
        yield Case(groupnorm.backward, args, [7, 8], terms, f"{label} no dx", per_sample=False, scratch=[9])
    for C, size, alpha, beta, k in [
        (7, 5, 1e-4, 0.75, 1.0),
        (6, 4, 0.7, 0.75, 2.0),
        (9, 3, 2.0, 0.6, 0.5),
        (2, 5, 1.5, 1.0, 1.0),
        (5, 1, 1.5, 0.75, 1.0),
    ]:
        shape = 3, 4, C
        x, dy, y, s = rng.standard_normal(shape) * 2, rng.standard_normal(shape), np.zeros(shape), np.zeros(shape)
        label = f"{C} channels, size {size}, alpha {alpha}, beta {beta}, k {k}"
        yield Case(response_norm.forward, [2, x, y, s, size, alpha, beta, k], [2, 3], size, label)
        response_norm.forward(3, x, y, s, size, alpha, beta, k)
        args = [2, x, y, s, dy, np.zeros(shape), np.zeros((3, C)), size, alpha, beta]
        yield Case(response_norm.backward, args, [5], size, label, scratch=[6])


def resampling_cases(rng):
    def both(label, rows, columns):
        """An operation and its gradient."""
        for direction, (a, b) in {"": (rows, columns), ", back": (rows.T.copy(), columns.T.copy())}.items():
            x, y = rng.standard_normal((3, a.shape[1], b.shape[1], 5)), np.zeros((3, a.shape[0], b.shape[0], 5))
            terms = int(max((a != 0).sum(1)) * max((b != 0).sum(1)))
            args = [2, x, y, a, resize.bands(a), b, resize.bands(b)]
            yield Case(resize.resample, args, [2], terms, label + direction)

    yield from both("nearest 2x3", resize.nearest(4, 2), resize.nearest(3, 3))
    yield from both("linear 2x3", resize.linear(4, 2, False), resize.linear(3, 3, False))
    yield from both("linear 3x2, corners", resize.linear(4, 3, True), resize.linear(3, 2, True))
    yield from both("linear of one pixel", resize.linear(1, 3, False), resize.linear(1, 2, True))
    yield from both("averages 7x5 to 3x5", resize.average(7, 3), resize.average(5, 5))
    yield from both("averages 3x9 to 5x1", resize.average(3, 5), resize.average(9, 1))
    yield from both("border", resize.border(4, 2, 1), resize.border(3, 0, 3))


def channel_cases(rng):
    for positions in (1, 2, 12, 400):
        x = rng.standard_normal((3, positions, 5)).round()  # ties on purpose
        x[0, positions // 2, 1] = x[0, -1, 1] = np.nan
        which = np.zeros((3, 5), np.int32)
        label = f"{positions} positions"
        yield Case(global_max.forward, [2, x, np.zeros((3, 5)), which], [2, 3], 1, label)
        won = which.copy()
        global_max.forward(3, x, np.zeros((3, 5)), won)
        yield Case(global_max.backward, [2, rng.standard_normal((3, 5)), won, np.zeros_like(x)], [3], 1, label)
    for first, C in ((0, 3), (4, 3), (0, 7), (2, 1)):  # the first, the last, all, one between
        part, whole, label = rng.standard_normal((3, 6, C)), rng.standard_normal((3, 6, 7)), f"{C} of 7 from {first}"
        yield Case(channels.put, [2, part, whole, first], [2], 1, label)
        yield Case(channels.take, [2, whole, part, first], [2], 1, label)
    x, samples = rng.standard_normal((4, 6, 13)), np.array([5, 900_000, 2, 17])
    kept = np.zeros((4, 13), np.uint8)
    yield Case(dropout2d.forward, [3, x, np.zeros_like(x), kept, samples, clock(), 2, 0.3], [2, 3])
    kept = rng.integers(0, 2, kept.shape).astype(np.uint8)
    yield Case(dropout2d.backward, [3, x, kept, np.zeros_like(x), 0.3], [3])


FAMILIES = (activation_cases, normalisation_cases, resampling_cases, channel_cases)
