"""Batch normalisation over the last axis (Ioffe & Szegedy 2015), with the statistics of the chunk (Hoffer et al. 2017).

    y = gamma · (x − mean) / sqrt(var + eps) + beta            mean, var: of the chunk, per channel, var biased

Arrays are (chunk, positions, C): a dense layer has one position. Because a chunk is computed in one piece by one
worker, its statistics, and so the bits, do not depend on the workers. The running statistics used for prediction are
those of the whole batch all the same: chunks are merged by count, in chunk order (Chan, Golub & LeVeque 1979), and the
result is what a textbook layer would have measured.
"""

import numpy as np

from .operation import operation, prange


@operation
def forward(n, x, gamma, beta, y, mean, centred, rstd, work, eps):
    """Normalise the first n samples of x into y.

    mean, centred (C,): the chunk's mean and Σ (x − mean)², kept for the running statistics; rstd (C,) =
    1/sqrt(var + eps), kept for backward; work (chunk, C): scratch.
    """
    count = n * x.shape[1]
    mean[:] = x[:n].mean(axis=(0, 1), dtype=np.float64)
    centred[:] = np.square(x[:n] - mean, dtype=np.float64).sum(axis=(0, 1))
    rstd[:] = 1 / np.sqrt(centred / count + eps)
    y[:n] = (x[:n] - mean) * (rstd * gamma) + beta


@forward.nest
def forward_nest(n, x, gamma, beta, y, mean, centred, rstd, work, eps):
    positions, C = x.shape[1], x.shape[2]
    count = n * positions
    for i in prange(n):
        for c in range(C):
            work[i, c] = 0
        for p in range(positions):
            for c in range(C):
                work[i, c] += x[i, p, c]
    for c in range(C):
        total = 0.0  # images are combined in double: a chunk has up to millions of terms
        for i in range(n):
            total += work[i, c]
        mean[c] = total / count
    for i in prange(n):
        for c in range(C):
            work[i, c] = 0
        for p in range(positions):
            for c in range(C):
                work[i, c] += (x[i, p, c] - mean[c]) * (x[i, p, c] - mean[c])
    for c in range(C):
        total = 0.0
        for i in range(n):
            total += work[i, c]
        centred[c] = total
        rstd[c] = 1 / np.sqrt(total / count + eps)
    for i in prange(n):
        for p in range(positions):
            for c in range(C):
                y[i, p, c] = (x[i, p, c] - mean[c]) * (rstd[c] * gamma[c]) + beta[c]


@operation
def backward(n, x, dy, gamma, mean, rstd, dx, dgamma, dbeta, work):
    """Gradients through the normalisation and its statistics; work (chunk, 2·C) is scratch.

    With x̂ = (x − mean)·rstd:  dbeta = Σ dy,  dgamma = Σ dy·x̂,  dx = gamma·rstd·(dy − dbeta/count − x̂·dgamma/count).
    """
    count = n * x.shape[1]
    normalised = (x[:n] - mean) * rstd
    dbeta[:] = dy[:n].sum(axis=(0, 1), dtype=np.float64)
    dgamma[:] = (dy[:n] * normalised).sum(axis=(0, 1), dtype=np.float64)
    if dx is not None:
        dx[:n] = gamma * rstd * (dy[:n] - dbeta / count - normalised * (dgamma / count))


@backward.nest
def backward_nest(n, x, dy, gamma, mean, rstd, dx, dgamma, dbeta, work):
    positions, C = x.shape[1], x.shape[2]
    count = n * positions
    for i in prange(n):
        for c in range(2 * C):
            work[i, c] = 0
        for p in range(positions):
            for c in range(C):
                work[i, c] += dy[i, p, c]
                work[i, C + c] += dy[i, p, c] * ((x[i, p, c] - mean[c]) * rstd[c])
    for c in range(C):
        sum_dy, sum_dy_x = 0.0, 0.0
        for i in range(n):
            sum_dy += work[i, c]
            sum_dy_x += work[i, C + c]
        dbeta[c] = sum_dy
        dgamma[c] = sum_dy_x
    if dx is not None:
        for i in prange(n):
            for p in range(positions):
                for c in range(C):
                    normalised = (x[i, p, c] - mean[c]) * rstd[c]
                    mean_dy = dbeta[c] / np.float32(count)
                    mean_dy_x = dgamma[c] / np.float32(count)
                    dx[i, p, c] = gamma[c] * rstd[c] * (dy[i, p, c] - mean_dy - normalised * mean_dy_x)


@operation
def forward_running(n, x, gamma, beta, running_mean, running_var, y, eps):
    """Normalise with the running statistics: prediction."""
    scale = gamma / np.sqrt(running_var + eps)
    y[:n] = (x[:n] - running_mean) * scale + beta


@forward_running.nest
def forward_running_nest(n, x, gamma, beta, running_mean, running_var, y, eps):
    for i in prange(n):
        for p in range(x.shape[1]):
            for c in range(x.shape[2]):
                scale = gamma[c] / np.sqrt(running_var[c] + np.float32(eps))
                y[i, p, c] = (x[i, p, c] - running_mean[c]) * scale + beta[c]


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
            delta = means[i, c] - mean
            both = count + more
            mean += delta * (more / both)
            centred += centreds[i, c] + delta * delta * (count * more / both)
            count = both
        new_mean[c] = (1 - momentum) * old_mean[c] + momentum * mean
        new_var[c] = (1 - momentum) * old_var[c] + momentum * (centred / max(count - 1, 1.0))


merge.nest(merge.reference)  # the definition is a loop already
