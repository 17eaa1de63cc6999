"""Cases of the operations that train: optimizers, norms of blocks, losses."""

import numpy as np
from kernel_cases import Case

from corenet.kernels import gradient as gradients
from corenet.kernels import layerwise, losses, update

# Places of arguments that stay double in training, by operation; see tests/test_kernels.py.
DOUBLE = {
    "update.adamw": [9],
    "update.rmsprop": [9],
    "update.rmsprop_centered": [11],
    "update.adagrad": [7],
    "update.adadelta": [9],
    "gradient.scale": [3],
    "gradient.clip_factor": [1, 2],
    "layerwise.partial_norms": [5],
    "layerwise.trust_ratios": [2, 3, 4, 5],
    "layerwise.lars": [8, 9, 10],
    "layerwise.lamb_moments": [9, 10, 11],
    "layerwise.lamb": [7, 8, 9],
    "losses.batch_scale": [1, 4],
    "losses.cross_entropy": [4, 5, 6],
    "losses.binary_cross_entropy": [4, 5, 6],
    "losses.mse": [4, 5, 6],
    "losses.l1": [4, 5, 6],
    "losses.huber": [4, 5, 6],
}


def optimizer_cases(rng):
    old, gradient, square = rng.standard_normal(99), rng.standard_normal(99), rng.random(99)
    out = [np.zeros(99) for _ in range(4)]
    moments = [rng.standard_normal(99), out[1], square, out[2]]
    hyper = np.array([0.01, 0.9, 0.999, 1e-3, 0.1, 1 - 0.9**3, 1 - 0.999**3])
    yield Case(update.adamw, [16, 80, old, out[0], gradient, *moments, hyper], [3, 6, 8], 4, per_sample=False)
    kept, hyper = [square, out[1], rng.standard_normal(99), out[2]], np.array([0.01, 0.9, 1e-3, 0.1, 0.8])
    yield Case(update.rmsprop, [16, 80, old, out[0], gradient, *kept, hyper], [3, 6, 8], 4, per_sample=False)
    kept = [square + 1, *kept[1:], 0.5 * rng.standard_normal(99), out[3]]
    args = [16, 80, old, out[0], gradient, *kept, hyper]
    yield Case(update.rmsprop_centered, args, [3, 6, 8, 10], 16, per_sample=False)
    args = [*args[:5], np.zeros(99), *args[6:9], 20 * args[9], *args[10:]]  # means that the squares cannot have
    yield Case(update.rmsprop_centered, args, [3, 6, 8, 10], 16, "clamped", per_sample=False)
    for initial in (0.0, 0.7):
        hyper = np.array([0.01, 1e-3, 0.1, initial])
        args = [16, 80, old, out[0], gradient, square, out[1], hyper]
        yield Case(update.adagrad, args, [3, 6], 4, f"from {initial}", per_sample=False)
    args = [16, 80, old, out[0], gradient, square, out[1], rng.random(99), out[2], np.array([0.5, 0.9, 1e-3, 0.1])]
    yield Case(update.adadelta, args, [3, 6, 8], 4, per_sample=False)


def gradient_cases(rng):
    vector, old, new = (rng.standard_normal(99) for _ in range(3))
    yield Case(gradients.clip, [16, 80, vector, 0.4], [], 1, per_sample=False, updated=[2])
    yield Case(gradients.scale, [16, 80, vector, np.array([0.3])], [], 1, per_sample=False, updated=[2])
    yield Case(gradients.average, [16, 80, vector, old, new, 0.9], [4], 2, per_sample=False)
    for limit in (0.5, 1e6):
        args = [3, rng.random((5, 2)), np.zeros(1), limit]
        yield Case(gradients.clip_factor, args, [2], 3, f"limit {limit}", per_sample=False)


def layerwise_cases(rng):
    blocks = np.array([[0, 40, 0], [40, 56, 0], [64, 65, 1], [70, 99, 2]])
    old, gradient, square = rng.standard_normal(99), rng.standard_normal(99), rng.random(99)
    out, sums = [np.zeros(99) for _ in range(3)], np.zeros((4, 2))
    decays, ratios = np.array([0.1, 0.0, 0.2]), np.array([1.5, 1.0, 0.3])
    for low, high in ((0, 4), (1, 3)):
        label = f"blocks {low} to {high}"
        yield Case(layerwise.partial_norms, [low, high, blocks, old, gradient, sums], [5], 40, label, per_sample=False)
        args = [low, high, blocks, old, out[0], gradient, rng.standard_normal(99), out[1], decays, ratios]
        yield Case(layerwise.lars, [*args, np.array([0.1, 0.9])], [4, 7], 4, label, per_sample=False)
        hyper = np.array([0.01, 0.9, 0.999, 1e-3, 1 - 0.9**3, 1 - 0.999**3])
        kept = [rng.standard_normal(99), out[1], square, out[2]]
        args = [low, high, blocks, old, gradient, *kept, decays, sums, hyper]
        yield Case(layerwise.lamb_moments, args, [6, 8, 10], 40, label, per_sample=False)
        args = [low, high, blocks, old, out[0], kept[0], square, decays, ratios, hyper]
        yield Case(layerwise.lamb, args, [4], 8, label, per_sample=False)
    starts, sums = np.array([0, 3, 3, 4, 6, 8]), rng.random((8, 2))
    sums[3, 0] = sums[4:6, 1] = 0
    coefficients = np.array([0.02, 0.02, 0.02, 0.02, 0.0])
    args = [4, starts, sums, rng.random(5), coefficients, np.zeros(5), 1e-3]
    yield Case(layerwise.trust_ratios, args, [5], 8, "a norm of 0", per_sample=True)
    args = [5, starts, sums, rng.random(5), coefficients, np.zeros(5), 0.0]
    yield Case(layerwise.trust_ratios, args, [5], 8, "a coefficient of 0", per_sample=True)


def loss_cases(rng):
    scale = np.array([1 / 13])
    weights, order = rng.random(12), rng.permutation(12)
    for label, given in (("", weights), ("nothing counts", 0 * weights)):
        yield Case(losses.batch_scale, [7, given, order, 4, np.zeros(1)], [4], 1, label, per_sample=False)
    for positions, classes in ((1, 10), (6, 3), (4, 1)):
        shape = 4, positions
        x, labels = (rng.standard_normal((*shape, classes)) * 4).round(), rng.integers(0, classes, shape)
        ignored = np.where(rng.random(shape) < 0.3, -100, labels)
        ignored[0, 0], ignored[1, 0] = -100, 0
        class_weights, out = rng.random(classes), [np.zeros_like(x), np.zeros((4, 4)), np.zeros(4)]
        for smoothing in (0.0, 0.1):
            label = f"{positions}x{classes} smoothing {smoothing}"
            args = [3, x, labels, *out, scale, np.ones(classes), -100, smoothing]
            yield Case(losses.cross_entropy, args, [3, 4, 5], 40, label, per_sample=False)
            args = [3, x, ignored, *out, scale, class_weights, -100, smoothing]
            yield Case(losses.cross_entropy, args, [3, 4, 5], 40, label + " weights", per_sample=False)
            args = [3, x, labels, *out, scale, class_weights, 0, smoothing]
            yield Case(losses.cross_entropy, args, [3, 4, 5], 40, label + " ignore 0", per_sample=False)
    x, target = rng.standard_normal((4, 15)).round(1), rng.standard_normal((4, 15)).round(1)  # some are equal
    x[0, 0] = target[0, 0]
    out = [np.zeros_like(x), np.zeros((4, 4)), np.zeros(4)]
    for operation, *more in ((losses.mse,), (losses.l1,), (losses.huber, 1.0), (losses.huber, 0.3)):
        yield Case(operation, [3, x, target, *out, scale, *more], [3, 4, 5], 16, f"{more}", per_sample=False)
    for pos_weight in (np.ones(1), rng.random(3) * 4):
        args = [3, x * 5, rng.random(x.shape).round(1), *out, scale, pos_weight]
        yield Case(losses.binary_cross_entropy, args, [3, 4, 5], 16, f"{len(pos_weight)}", per_sample=False)


FAMILIES = (optimizer_cases, gradient_cases, layerwise_cases, loss_cases)
