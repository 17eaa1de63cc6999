"""Batch normalisation over the last axis (Ioffe & Szegedy 2015): of the chunk (Hoffer et al. 2017), or of the batch.

    y = gamma · (x − mean) / sqrt(var + eps) + beta            mean, var: of chunk or batch, per channel, var biased

    forward    measure the chunk ──────────── (all chunks meet: combine) ──────────── normalise
    backward   measure_gradients of it ────── (all chunks meet: combine_gradients) ── backward

Arrays are (chunk, positions, C): a dense layer has one position. A chunk is computed in one piece by one worker, and
chunks are combined by count in an order that only their number decides, so the bits do not depend on the workers. The
running statistics used for prediction are those of the whole batch either way: what a textbook layer would have
measured.
"""

import numpy as np

from .operation import device, operation, prange
from .row_pass import RowPass
from .rows import folded, repeated, row_width
from .tree import fold, tree_sum

WIDTH = 64  # floats of a row: as many as one pass has in registers


@RowPass
def values(x):
    """To be summed: x."""
    return (x,)


@RowPass
def squares(x, origin):
    """To be summed: the distance to some origin, and its square."""
    return x - origin, (x - origin) * (x - origin)


@RowPass
def normalised(x, mean, scale, shift):
    """To be kept: y."""
    return ((x - mean) * scale + shift,)


@RowPass
def products(x, dy, mean):
    """To be summed: dy, and dy·(x − mean)."""
    return dy, dy * (x - mean)


@RowPass
def gradients(x, dy, mean, slope, less, scale):
    """To be kept: dx."""
    return (scale * (dy - less - (x - mean) * slope),)


@operation
def measure(n, x, mean, centred, rstd, work, eps):
    """The chunk's mean (C,) and centred (C,) = Σ (x − mean)², of the first n samples of x.

    rstd (C,) = 1/sqrt(var + eps), or None where the chunk's is not wanted; work (chunk, 2·C): scratch.
    """
    mean[:] = x[:n].mean(axis=(0, 1), dtype=np.float64)
    centred[:] = np.square(x[:n] - mean, dtype=np.float64).sum(axis=(0, 1))
    if rstd is not None:
        rstd[:] = 1 / np.sqrt(centred / (n * x.shape[1]) + eps)


@measure.nest
def measure_nest(n, x, mean, centred, rstd, work, eps):
    """One pass, with the first image's mean as origin: n samples cannot lie more than √n deviations away from it, so
    what cancels is bounded, and mostly little."""
    positions, C = x.shape[1], x.shape[2]
    count, size, width = n * positions, positions * C, row_width(C, positions, WIDTH)
    flat = x.reshape(-1)
    sums, first = np.zeros(width, x.dtype), np.empty(C, x.dtype)
    values((flat,), 0, size, (), (), (sums,))
    folded(sums, first)
    for c in range(C):
        first[c] /= positions
    origin = repeated(first, width)
    for i in prange(n):
        sum_x, sum_xx = np.zeros(width, x.dtype), np.zeros(width, x.dtype)
        squares((flat,), i * size, size, (origin,), (), (sum_x, sum_xx))
        folded(sum_x, work[i, :C])
        folded(sum_xx, work[i, C:])
    totals = added_images(n, work)
    for c in range(C):
        spread = totals[C + c] - totals[c] * totals[c] / count
        mean[c] = first[c] + totals[c] / count
        centred[c] = 0.0 if spread < 0 else spread
        if rstd is not None:
            rstd[c] = 1 / np.sqrt(centred[c] / count + eps)


@device
def added_images(n, work):
    """The sums over images of each column, in double: a chunk has up to millions of terms."""
    totals = np.zeros(work.shape[1])
    for i in range(n):
        for c in range(work.shape[1]):
            totals[c] += work[i, c]
    return totals


@device
def merged(count, mean, centred, more, its_mean, its_centred):
    """Mean and Σ (x − mean)² of two sets of values together (Chan, Golub & LeVeque 1979)."""
    delta = its_mean - mean
    both = count + more
    return mean + delta * (more / both), centred + (its_centred + delta * delta * (count * more / both))


@operation
def combine(n, means, centreds, counts, mean, rstd, work, positions, eps):
    """The mean and rstd (C,) of a batch of n chunks, along the tree of `tree.fold`.

    means, centreds (chunks, C): what `measure` found; counts (chunks,) int64: samples; work (chunks, 2·C): scratch.
    """
    C = mean.shape[0]
    work[:n, :C] = means[:n]
    work[:n, C:] = centreds[:n]
    step = 1
    while step < n:
        for left in range(0, n - step, 2 * step):
            right = left + step
            count = counts[left:right].sum() * positions
            more = counts[right : min(right + step, n)].sum() * positions
            for c in range(C):
                work[left, c], work[left, C + c] = merged(
                    count, work[left, c], work[left, C + c], more, work[right, c], work[right, C + c]
                )
        step *= 2
    count = counts[:n].sum() * positions
    for c in range(C):
        mean[c] = work[0, c]
        rstd[c] = 1 / np.sqrt(work[0, C + c] / count + eps)


combine.nest(combine.reference)  # the definition is a loop already


@operation
def normalise(n, x, gamma, beta, mean, rstd, y):
    """Normalise the first n samples of x into y."""
    y[:n] = (x[:n] - mean) * (rstd * gamma) + beta


@normalise.nest
def normalise_nest(n, x, gamma, beta, mean, rstd, y):
    size, width = x.shape[1] * x.shape[2], row_width(x.shape[2], x.shape[1], WIDTH)
    numbers = repeated(mean, width), repeated(rstd * gamma, width), repeated(beta, width)
    for i in prange(n):
        normalised((x.reshape(-1),), i * size, size, numbers, (y.reshape(-1),), ())


@operation
def measure_gradients(n, x, dy, mean, rstd, dgamma, dbeta, means, work):
    """The chunk's dgamma = Σ dy·x̂ and dbeta = Σ dy, each (C,), with x̂ = (x − mean)·rstd.

    means (2, C): the means of dy and of dy·x̂, or None where the chunk's are not wanted; work (chunk, 2·C): scratch.
    """
    dbeta[:] = dy[:n].sum(axis=(0, 1), dtype=np.float64)
    dgamma[:] = (dy[:n] * ((x[:n] - mean) * rstd)).sum(axis=(0, 1), dtype=np.float64)
    if means is not None:
        means[0], means[1] = dbeta / (n * x.shape[1]), dgamma / (n * x.shape[1])


@measure_gradients.nest
def measure_gradients_nest(n, x, dy, mean, rstd, dgamma, dbeta, means, work):
    positions, C = x.shape[1], x.shape[2]
    size, width = positions * C, row_width(C, positions, WIDTH)
    flat_x, flat_dy, centre = x.reshape(-1), dy.reshape(-1), repeated(mean, width)
    for i in prange(n):
        sum_dy, sum_dy_x = np.zeros(width, x.dtype), np.zeros(width, x.dtype)
        products((flat_x, flat_dy), i * size, size, (centre,), (), (sum_dy, sum_dy_x))
        folded(sum_dy, work[i, :C])
        folded(sum_dy_x, work[i, C:])
    add_images(n, positions, rstd, dgamma, dbeta, means, work)


@device
def add_images(n, positions, rstd, dgamma, dbeta, means, work):
    """From each image's Σ dy and Σ dy·(x − mean), in work (chunk, 2·C), to what `measure_gradients` gives."""
    C, totals = dbeta.shape[0], added_images(n, work)
    for c in range(C):
        dbeta[c] = totals[c]
        dgamma[c] = totals[C + c] * rstd[c]
        if means is not None:
            means[0, c] = totals[c] / (n * positions)
            means[1, c] = totals[C + c] * rstd[c] / (n * positions)


@operation
def combine_gradients(n, dgammas, dbetas, counts, means, work, positions):
    """The means (2, C) of dy and of dy·x̂ over a batch of n chunks, from each one's sums, folded along the tree.

    counts (chunks,) int64: samples; work (chunks, 2·C): scratch.
    """
    C = dbetas.shape[1]
    work[:n, :C] = dbetas[:n]
    work[:n, C:] = dgammas[:n]
    fold(n, work, means.reshape(-1), 0, 2 * C)
    means /= counts[:n].sum() * positions


@combine_gradients.nest
def combine_gradients_nest(n, dgammas, dbetas, counts, means, work, positions):
    C = dbetas.shape[1]
    work[:n, :C] = dbetas[:n]
    work[:n, C:] = dgammas[:n]
    tree_sum(n, work, 0, 2 * C)
    count = counts[:n].sum() * positions
    for c in range(C):
        means[0, c] = work[0, c] / count
        means[1, c] = work[0, C + c] / count


@operation
def backward(n, x, dy, gamma, mean, rstd, means, dx):
    """The gradient through the normalisation and its statistics, given the means (2, C) of dy and of dy·x̂.

    dx = gamma·rstd·(dy − mean of dy − x̂·mean of dy·x̂)
    """
    dx[:n] = gamma * rstd * (dy[:n] - means[0] - (x[:n] - mean) * rstd * means[1])


@backward.nest
def backward_nest(n, x, dy, gamma, mean, rstd, means, dx):
    size, width = x.shape[1] * x.shape[2], row_width(x.shape[2], x.shape[1], WIDTH)
    numbers = (
        repeated(mean, width), repeated(rstd * means[1], width), repeated(means[0], width),
        repeated(gamma * rstd, width),
    )  # fmt: skip
    for i in prange(n):
        gradients((x.reshape(-1), dy.reshape(-1)), i * size, size, numbers, (dx.reshape(-1),), ())


@operation
def running_rstd(n, running_var, rstd, eps):
    """rstd (C,) = 1/sqrt(var + eps) of the running variance: what prediction normalises with."""
    for c in range(rstd.shape[0]):
        rstd[c] = 1 / np.sqrt(running_var[c] + eps)


running_rstd.nest(running_rstd.reference)


@operation
def merge(n, means, centreds, counts, old_mean, old_var, new_mean, new_var, positions, momentum):
    """Move the running statistics towards those of a batch of n chunks, as PyTorch does.

    means, centreds (chunks, C): mean and Σ (x − mean)² of each chunk; counts (chunks,) int64: its samples.
    running ← (1 − momentum)·running + momentum·batch, with the unbiased variance (of one value: 0).
    """
    for c in range(old_mean.shape[0]):
        count, mean, centred = 0.0, 0.0, 0.0
        for i in range(n):
            more = float(counts[i] * positions)
            mean, centred = merged(count, mean, centred, more, means[i, c], centreds[i, c])
            count += more
        new_mean[c] = (1 - momentum) * old_mean[c] + momentum * mean
        new_var[c] = (1 - momentum) * old_var[c] + momentum * (centred / max(count - 1, 1.0))


merge.nest(merge.reference)
