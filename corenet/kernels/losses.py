"""Losses and their gradients in one pass, with weights: each divides by the effective count of the whole batch.

    metrics = Σ weight · loss, hits        dx = scale · weight · d loss / dx        scale[0] = 1 / effective count

`scale` (1,) float64 is bound once and changed with every batch. It belongs to the batch, not to the chunk, so gradients
of chunks add up to the batch's however unequal the shares are, with masked elements, too. PyTorch's reduction="mean"
divides cross-entropy by `effective_count`, weighted MSE and L1 by the sum of the weights, and everything else by the
number of elements. Where the count is 0, as all is masked, `scale` must be 0: nothing is learned from such a batch.

`weights` has a weight for each element, or is of size 0 where all are 1; what has weight 0 is masked: it may be NaN
and is no hit. Rows of cross-entropy are (chunk, positions, classes): one position for an image, or one for each pixel.
"""

import numpy as np

from .cross_entropy import CORRECT, LOSS
from .operation import device, operation, prange

IGNORE = -100  # PyTorch's label of rows that do not count


@device
def weight_of(weights, i, j):
    """The weight of one element; 1 where there are none."""
    return weights[i, j] if weights.size > 0 else np.float32(1)


@operation
def effective_count(n, labels, order, first, class_weights, ignore, total):
    """total (1,) float64 = Σ class weight of the labels of samples order[first] … order[first + n] that count.

    labels (N, positions) int64 of the whole data set; added in this order, in double, so every worker gets the same.
    """
    picked = labels[order[first : first + n]]
    total[0] = class_weights[picked[picked != ignore]].sum(dtype=np.float64)


@effective_count.nest
def effective_count_nest(n, labels, order, first, class_weights, ignore, total):
    count = 0.0
    for i in range(n):
        sample = order[first + i]
        for p in range(labels.shape[1]):
            if labels[sample, p] != ignore:
                count += class_weights[labels[sample, p]]
    total[0] = count


@operation
def cross_entropy(n, x, labels, dx, losses, metrics, scale, weights, class_weights, ignore, smoothing):
    """Softmax cross-entropy of logits x (chunk, positions, classes) and labels (chunk, positions) int64.

        loss = −Σ_c q_c · log softmax(x)_c
        q_c = class weight_c · ((1 − smoothing) · [c = label] + smoothing / classes)

    Rows whose label is `ignore` are masked. losses, and weights if any: (chunk, positions); hits: rows whose largest
    logit (the first of equals) is the label's. Smoothing (Szegedy et al. 2016) with class weights is PyTorch's.
    """
    classes = x.shape[2]
    weight = (weights[:n] if weights.size else x.dtype.type(1)) * (labels[:n] != ignore)
    masked = weight == 0
    label = np.where(masked, 0, labels[:n])
    shifted = x[:n] - x[:n].max(axis=2, keepdims=True)
    log_total = np.log(np.exp(shifted).sum(axis=2, keepdims=True))
    q = np.full(shifted.shape, smoothing / classes, x.dtype)
    np.put_along_axis(q, label[..., None], 1 - smoothing + smoothing / classes, axis=2)
    q *= class_weights
    losses[:n] = np.where(masked, 0, weight * (q * (log_total - shifted)).sum(axis=2))
    slope = np.exp(shifted - log_total) * q.sum(axis=2, keepdims=True) - q
    dx[:n] = np.where(masked[..., None], 0, (scale[0] * weight)[..., None] * slope)
    metrics[LOSS] = losses[:n].sum(dtype=np.float64)
    metrics[CORRECT] = np.count_nonzero((x[:n].argmax(axis=2) == label) & ~masked)


@cross_entropy.nest
def cross_entropy_nest(n, x, labels, dx, losses, metrics, scale, weights, class_weights, ignore, smoothing):
    positions, classes = x.shape[1], x.shape[2]
    spread, sharp = np.float32(smoothing / classes), np.float32(1 - smoothing)
    all_weights = np.float32(0)
    for c in range(classes):
        all_weights += class_weights[c]
    for i in prange(n):
        for p in range(positions):
            label, weight = labels[i, p], weight_of(weights, i, p)
            if label == ignore or weight == 0:
                losses[i, p] = 0
                for c in range(classes):
                    dx[i, p, c] = 0
                continue
            largest = x[i, p, 0]
            for c in range(1, classes):
                if x[i, p, c] > largest:
                    largest = x[i, p, c]
            total = np.float32(0)
            for c in range(classes):
                dx[i, p, c] = np.exp(x[i, p, c] - largest)
                total += dx[i, p, c]
            log_total, own = np.log(total), sharp * class_weights[label]
            loss = own * (log_total - (x[i, p, label] - largest))
            if smoothing > 0:
                for c in range(classes):
                    loss += spread * class_weights[c] * (log_total - (x[i, p, c] - largest))
            losses[i, p] = weight * loss
            factor = weight * np.float32(scale[0])
            all_q = own + spread * all_weights
            for c in range(classes):
                q = spread * class_weights[c] + (own if c == label else np.float32(0))
                dx[i, p, c] = factor * (dx[i, p, c] / total * all_q - q)
    loss_sum, hits = 0.0, 0.0
    for i in range(n):
        for p in range(positions):
            loss_sum += losses[i, p]
            best = 0
            for c in range(1, classes):
                if x[i, p, c] > x[i, p, best]:
                    best = c
            hits += best == labels[i, p] and best != ignore and weight_of(weights, i, p) != 0
    metrics[LOSS] = loss_sum
    metrics[CORRECT] = hits


def _weighted(n, loss, slope, dx, losses, metrics, scale, weights):
    """What the definitions below have in common, from each element's loss and its derivative."""
    weight = weights[:n] if weights.size else loss.dtype.type(1)
    losses[:n] = np.where(weight == 0, 0, weight * loss).sum(axis=1, dtype=np.float64)
    dx[:n] = np.where(weight == 0, 0, scale[0] * weight * slope)
    metrics[LOSS], metrics[CORRECT] = losses[:n].sum(dtype=np.float64), 0


@device
def add_up(n, losses, metrics):
    """The chunk's sum in sample order, in double; no hits."""
    total = 0.0
    for i in range(n):
        total += losses[i]
    metrics[LOSS] = total
    metrics[CORRECT] = 0


@operation
def binary_cross_entropy(n, x, target, dx, losses, metrics, scale, weights, pos_weight):
    """Sigmoid cross-entropy of logits x (chunk, elements) with targets of 0 … 1, each element for itself.

        loss = pos_weight · t · log(1 + e^−x) + (1 − t) · log(1 + e^x)

    pos_weight (classes,) is that of the last axis, repeated along the elements, or of size 0 where all are 1.
    losses (chunk,): sums over the elements; hits: elements with x and target on the same side of 0 and 1/2.
    """
    x, t = x[:n], target[:n]
    positive = t * (np.resize(pos_weight, x.shape[1]) if pos_weight.size else 1)
    tail = np.exp(-np.abs(x))
    own, other = np.where(x < 0, tail, 1) / (1 + tail), np.where(x < 0, 1, tail) / (1 + tail)  # σ(x), σ(−x)
    loss = positive * (np.log1p(tail) + np.maximum(-x, 0)) + (1 - t) * (np.log1p(tail) + np.maximum(x, 0))
    _weighted(n, loss, (1 - t) * own - positive * other, dx, losses, metrics, scale, weights)
    metrics[CORRECT] = np.count_nonzero(((x > 0) == (t > 0.5)) & ((weights[:n] if weights.size else 1) != 0))


@binary_cross_entropy.nest
def binary_cross_entropy_nest(n, x, target, dx, losses, metrics, scale, weights, pos_weight):
    one, zero, factor = np.float32(1), np.float32(0), np.float32(scale[0])
    for i in prange(n):
        total = 0.0
        for j in range(x.shape[1]):
            weight, value, t = weight_of(weights, i, j), x[i, j], target[i, j]
            if weight == 0:
                dx[i, j] = 0
                continue
            positive = t * pos_weight[j % pos_weight.size] if pos_weight.size > 0 else t
            tail = np.exp(-abs(value))
            rest, own, other = np.log1p(tail), one / (one + tail), tail / (one + tail)
            if value < 0:
                own, other = other, own
            total += weight * (positive * (rest + max(-value, zero)) + (one - t) * (rest + max(value, zero)))
            dx[i, j] = factor * weight * ((one - t) * own - positive * other)
        losses[i] = total
    add_up(n, losses, metrics)
    hits = 0.0
    for i in range(n):
        for j in range(x.shape[1]):
            hits += (x[i, j] > 0) == (target[i, j] > np.float32(0.5)) and weight_of(weights, i, j) != 0
    metrics[CORRECT] = hits


@operation
def mse(n, x, target, dx, losses, metrics, scale, weights):
    """Squared error (x − target)² of arrays (chunk, elements); losses (chunk,): sums over the elements."""
    d = x[:n] - target[:n]
    _weighted(n, d * d, 2 * d, dx, losses, metrics, scale, weights)


@mse.nest
def mse_nest(n, x, target, dx, losses, metrics, scale, weights):
    factor = np.float32(2 * scale[0])
    for i in prange(n):
        total = 0.0
        for j in range(x.shape[1]):
            weight, d = weight_of(weights, i, j), x[i, j] - target[i, j]
            if weight == 0:
                dx[i, j] = 0
                continue
            total += weight * d * d
            dx[i, j] = factor * weight * d
        losses[i] = total
    add_up(n, losses, metrics)


@operation
def l1(n, x, target, dx, losses, metrics, scale, weights):
    """Absolute error |x − target|, its derivative 0 at 0; arrays as for `mse`."""
    d = x[:n] - target[:n]
    _weighted(n, np.abs(d), np.sign(d), dx, losses, metrics, scale, weights)


@l1.nest
def l1_nest(n, x, target, dx, losses, metrics, scale, weights):
    factor = np.float32(scale[0])
    for i in prange(n):
        total = 0.0
        for j in range(x.shape[1]):
            weight, d = weight_of(weights, i, j), x[i, j] - target[i, j]
            if weight == 0:
                dx[i, j] = 0
                continue
            total += weight * abs(d)
            dx[i, j] = factor * weight * np.sign(d)
        losses[i] = total
    add_up(n, losses, metrics)


@operation
def huber(n, x, target, dx, losses, metrics, scale, weights, delta):
    """d²/2 where |d| = |x − target| is at most delta, else delta·(|d| − delta/2) (Huber 1964); arrays as for `mse`."""
    d = x[:n] - target[:n]
    near = np.abs(d) <= delta
    loss = np.where(near, d * d / 2, delta * (np.abs(d) - delta / 2))
    _weighted(n, loss, np.where(near, d, delta * np.sign(d)), dx, losses, metrics, scale, weights)


@huber.nest
def huber_nest(n, x, target, dx, losses, metrics, scale, weights, delta):
    factor, limit, half = np.float32(scale[0]), np.float32(delta), np.float32(0.5)
    for i in prange(n):
        total = 0.0
        for j in range(x.shape[1]):
            weight, d = weight_of(weights, i, j), x[i, j] - target[i, j]
            if weight == 0:
                dx[i, j] = 0
                continue
            clipped = -limit if d < -limit else limit if d > limit else d  # NaN stays NaN
            total += weight * clipped * (d - half * clipped)
            dx[i, j] = factor * weight * clipped
        losses[i] = total
    add_up(n, losses, metrics)
