"""Losses and their gradients in one pass; each divides by the effective count of the whole batch.

    dx = scale · d loss / dx      sums[i] = sample i's loss, hits, weight, number of what counts      metrics = Σ sums

`scale` (1,) float64 is 1 / Σ weight of the batch (`batch_scale`). It belongs to the batch, not to the chunk, so
gradients of chunks add up to the batch's however unequal the shares are, with masked labels, too. PyTorch's
reduction="mean" is the same: cross-entropy weighs each label by its class, all else counts elements.

Rows of cross-entropy are (chunk, positions, classes): one position for an image, or one for each pixel.
"""

import numpy as np

from .operation import device, operation, prange

LOSS, CORRECT, WEIGHT, COUNTED = 0, 1, 2, 3  # places in `metrics`, and columns of `sums`
METRICS = 4


@operation
def batch_scale(n, weights, order, first, scale):
    """scale[0] = 1 / Σ weight of samples order[first] … order[first + n], or 0 where nothing counts.

    weights (N,) float64; added one after the other, so every worker gets the same.
    """
    total = np.cumsum(weights[order[first : first + n]])[-1]
    scale[0] = 1 / total if total > 0 else 0


@batch_scale.nest
def batch_scale_nest(n, weights, order, first, scale):
    total = 0.0
    for i in range(n):
        total += weights[order[first + i]]
    scale[0] = 1 / total if total > 0 else 0.0


@device
def add_up(n, sums, metrics):
    """The chunk's metrics, in sample order."""
    for column in range(METRICS):
        total = 0.0
        for i in range(n):
            total += sums[i, column]
        metrics[column] = total


@operation
def cross_entropy(n, x, labels, dx, sums, metrics, scale, class_weights, ignore, smoothing):
    """Softmax cross-entropy of logits x (chunk, positions, classes) and labels (chunk, positions) int64.

        loss = −Σ_c q_c · log softmax(x)_c
        q_c = class weight_c · ((1 − smoothing) · [c = label] + smoothing / classes)

    Labels that are `ignore` are masked: their logits may be anything, and get no gradient. The weight of a label is its
    class's; hits: rows whose largest logit (the first of equals) is the label's. Smoothing (Szegedy et al. 2016) with
    class weights is PyTorch's.
    """
    classes = x.shape[2]
    counts = labels[:n] != ignore
    label = np.where(counts, labels[:n], 0)
    shifted = x[:n] - x[:n].max(axis=2, keepdims=True)
    log_total = np.log(np.exp(shifted).sum(axis=2, keepdims=True))
    q = np.full(shifted.shape, smoothing / classes, x.dtype)
    np.put_along_axis(q, label[..., None], 1 - smoothing + smoothing / classes, axis=2)
    q *= class_weights
    slope = np.exp(shifted - log_total) * q.sum(axis=2, keepdims=True) - q
    dx[:n] = np.where(counts[..., None], scale[0] * slope, 0)
    sums[:n, LOSS] = np.where(counts, (q * (log_total - shifted)).sum(axis=2), 0).sum(axis=1, dtype=np.float64)
    sums[:n, CORRECT] = ((x[:n].argmax(axis=2) == label) & counts).sum(axis=1)
    sums[:n, WEIGHT] = np.where(counts, class_weights[label], 0).sum(axis=1, dtype=np.float64)
    sums[:n, COUNTED] = counts.sum(axis=1)
    metrics[:] = sums[:n].sum(axis=0)


@cross_entropy.nest
def cross_entropy_nest(n, x, labels, dx, sums, metrics, scale, class_weights, ignore, smoothing):
    positions, classes = x.shape[1], x.shape[2]
    spread, sharp, factor = np.float32(smoothing / classes), np.float32(1 - smoothing), np.float32(scale[0])
    all_weights = np.float32(0)
    for c in range(classes):
        all_weights += class_weights[c]
    for i in prange(n):
        losses, hits, weights, counted = 0.0, 0.0, 0.0, 0.0
        for p in range(positions):
            label = labels[i, p]
            if label == ignore:
                for c in range(classes):
                    dx[i, p, c] = 0
                continue
            best = 0
            for c in range(1, classes):
                if x[i, p, c] > x[i, p, best]:
                    best = c
            largest, total = x[i, p, best], np.float32(0)
            for c in range(classes):
                dx[i, p, c] = np.exp(x[i, p, c] - largest)
                total += dx[i, p, c]
            log_total, own = np.log(total), sharp * class_weights[label]
            losses += own * (log_total - (x[i, p, label] - largest))
            if smoothing > 0:
                for c in range(classes):
                    losses += spread * class_weights[c] * (log_total - (x[i, p, c] - largest))
            all_q = own + spread * all_weights
            for c in range(classes):
                q = spread * class_weights[c] + (own if c == label else np.float32(0))
                dx[i, p, c] = factor * (dx[i, p, c] / total * all_q - q)
            hits += best == label
            weights += class_weights[label]
            counted += 1
        sums[i, LOSS], sums[i, CORRECT], sums[i, WEIGHT], sums[i, COUNTED] = losses, hits, weights, counted
    add_up(n, sums, metrics)


def _elements(n, loss, hits, slope, dx, sums, metrics, scale):
    """What the definitions below have in common, from each element's loss, whether it is a hit, and its derivative."""
    dx[:n] = scale[0] * slope
    sums[:n, LOSS] = loss.sum(axis=1, dtype=np.float64)
    sums[:n, CORRECT] = hits.sum(axis=1)
    sums[:n, WEIGHT] = sums[:n, COUNTED] = loss.shape[1]
    metrics[:] = sums[:n].sum(axis=0)


@device
def sum_elements(sums, i, loss, hits, elements):
    """The sums of sample i, whose elements all count."""
    sums[i, LOSS], sums[i, CORRECT], sums[i, WEIGHT], sums[i, COUNTED] = loss, hits, elements, elements


@operation
def binary_cross_entropy(n, x, target, dx, sums, metrics, scale, pos_weight):
    """Sigmoid cross-entropy of logits x (chunk, elements) with targets of 0 … 1, each element for itself.

        loss = pos_weight · t · log(1 + e^−x) + (1 − t) · log(1 + e^x)

    pos_weight (classes,) is that of the last axis, repeated along the elements. Hits: elements with x and target on the
    same side of 0 and 1/2.
    """
    x, t = x[:n], target[:n]
    positive = t * np.resize(pos_weight, x.shape[1])
    tail = np.exp(-np.abs(x))
    own, other = np.where(x < 0, tail, 1) / (1 + tail), np.where(x < 0, 1, tail) / (1 + tail)  # σ(x), σ(−x)
    loss = positive * (np.log1p(tail) + np.maximum(-x, 0)) + (1 - t) * (np.log1p(tail) + np.maximum(x, 0))
    hits = (x > 0) == (t > 0.5)
    _elements(n, loss, hits, (1 - t) * own - positive * other, dx, sums, metrics, scale)


@binary_cross_entropy.nest
def binary_cross_entropy_nest(n, x, target, dx, sums, metrics, scale, pos_weight):
    one, zero, factor = np.float32(1), np.float32(0), np.float32(scale[0])
    for i in prange(n):
        total, hits = 0.0, 0.0
        for j in range(x.shape[1]):
            value, t = x[i, j], target[i, j]
            positive = t * pos_weight[j % pos_weight.size]
            tail = np.exp(-abs(value))
            rest, own, other = np.log1p(tail), one / (one + tail), tail / (one + tail)
            if value < 0:
                own, other = other, own
            total += positive * (rest + max(-value, zero)) + (one - t) * (rest + max(value, zero))
            dx[i, j] = factor * ((one - t) * own - positive * other)
            hits += (value > 0) == (t > np.float32(0.5))
        sum_elements(sums, i, total, hits, x.shape[1])
    add_up(n, sums, metrics)


@operation
def mse(n, x, target, dx, sums, metrics, scale):
    """Squared error (x − target)² of arrays (chunk, elements); there are no hits."""
    d = x[:n] - target[:n]
    _elements(n, d * d, d != d, 2 * d, dx, sums, metrics, scale)


@mse.nest
def mse_nest(n, x, target, dx, sums, metrics, scale):
    factor = np.float32(2 * scale[0])
    for i in prange(n):
        total = 0.0
        for j in range(x.shape[1]):
            d = x[i, j] - target[i, j]
            total += d * d
            dx[i, j] = factor * d
        sum_elements(sums, i, total, 0.0, x.shape[1])
    add_up(n, sums, metrics)


@operation
def l1(n, x, target, dx, sums, metrics, scale):
    """Absolute error |x − target|, its derivative 0 at 0; arrays as for `mse`."""
    d = x[:n] - target[:n]
    _elements(n, np.abs(d), d != d, np.sign(d), dx, sums, metrics, scale)


@l1.nest
def l1_nest(n, x, target, dx, sums, metrics, scale):
    factor = np.float32(scale[0])
    for i in prange(n):
        total = 0.0
        for j in range(x.shape[1]):
            d = x[i, j] - target[i, j]
            total += abs(d)
            dx[i, j] = factor * np.sign(d)
        sum_elements(sums, i, total, 0.0, x.shape[1])
    add_up(n, sums, metrics)


@operation
def huber(n, x, target, dx, sums, metrics, scale, delta):
    """d²/2 where |d| = |x − target| is at most delta, else delta·(|d| − delta/2) (Huber 1964); arrays as for `mse`."""
    d = x[:n] - target[:n]
    near = np.abs(d) <= delta
    loss = np.where(near, d * d / 2, delta * (np.abs(d) - delta / 2))
    _elements(n, loss, d != d, np.where(near, d, delta * np.sign(d)), dx, sums, metrics, scale)


@huber.nest
def huber_nest(n, x, target, dx, sums, metrics, scale, delta):
    factor, limit, half = np.float32(scale[0]), np.float32(delta), np.float32(0.5)
    for i in prange(n):
        total = 0.0
        for j in range(x.shape[1]):
            d = x[i, j] - target[i, j]
            clipped = -limit if d < -limit else limit if d > limit else d  # NaN stays NaN
            total += clipped * (d - half * clipped)
            dx[i, j] = factor * clipped
        sum_elements(sums, i, total, 0.0, x.shape[1])
    add_up(n, sums, metrics)
