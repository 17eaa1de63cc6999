"""Normalisation of each sample by itself, in groups of channels (Wu & He 2018) or over a layer (Ba et al. 2016).

    y = gamma · (x − mean) / sqrt(var + eps) + beta            var biased, as in batch norm

Arrays are (chunk, rows, positions, C), mean and rstd (chunk, rows, G): statistics are of each row of each sample, and
each of G groups of C/G neighbouring channels, over all positions. Group norm has one row, and the pixels as positions;
layer norm has one group and one position, the normalised axes as channels and the others as rows. gamma and beta are
(C,), or (0,) for neither. A sample's statistics are its own, and so do not depend on chunks or workers.
"""

import numpy as np

from .operation import operation, prange


def _grouped(x, groups):
    """(n, rows, positions, C) as (n, rows, positions, groups, C/groups)."""
    return x.reshape(*x.shape[:3], groups, -1)


@operation
def forward(n, x, gamma, beta, y, mean, rstd, work, eps):
    """Normalise x into y; mean and rstd = 1/sqrt(var + eps) are kept for backward; work (chunk, C): scratch."""
    grouped = _grouped(x[:n], mean.shape[2])
    mean[:n] = grouped.mean(axis=(2, 4), dtype=np.float64)
    centred = grouped - mean[:n, :, None, :, None]
    rstd[:n] = 1 / np.sqrt(np.square(centred, dtype=np.float64).mean(axis=(2, 4)) + eps)
    normalised = (centred * rstd[:n, :, None, :, None]).reshape(x[:n].shape)
    y[:n] = normalised * gamma + beta if gamma.size else normalised


@forward.nest
def forward_nest(n, x, gamma, beta, y, mean, rstd, work, eps):
    rows, positions, C = x.shape[1], x.shape[2], x.shape[3]
    groups = mean.shape[2]
    members = C // groups
    count = positions * members
    affine = gamma.shape[0] > 0
    for i in prange(n):
        for row in range(rows):
            for c in range(C):
                work[i, c] = 0
            for p in range(positions):
                for c in range(C):
                    work[i, c] += x[i, row, p, c]
            for g in range(groups):
                total = 0.0  # channels are combined in double
                for c in range(g * members, (g + 1) * members):
                    total += work[i, c]
                mean[i, row, g] = total / count
            for c in range(C):
                work[i, c] = 0
            for p in range(positions):
                for g in range(groups):
                    middle = mean[i, row, g]
                    for c in range(g * members, (g + 1) * members):
                        work[i, c] += (x[i, row, p, c] - middle) * (x[i, row, p, c] - middle)
            for g in range(groups):
                total = 0.0
                for c in range(g * members, (g + 1) * members):
                    total += work[i, c]
                rstd[i, row, g] = 1 / np.sqrt(total / count + eps)
            for p in range(positions):
                for g in range(groups):
                    middle, scale = mean[i, row, g], rstd[i, row, g]
                    for c in range(g * members, (g + 1) * members):
                        normalised = (x[i, row, p, c] - middle) * scale
                        y[i, row, p, c] = normalised * gamma[c] + beta[c] if affine else normalised


@operation
def backward(n, x, dy, gamma, mean, rstd, dx, dgamma, dbeta, work):
    """Gradients through the normalisation and its statistics; work (chunk, 4·C) is scratch, dx may be None.

    With x̂ = (x − mean)·rstd:  dbeta = Σ dy,  dgamma = Σ dy·x̂,  over samples, rows and positions; and with g = dy·gamma,
    dx = rstd·(g − mean of g − x̂·mean of g·x̂),  the means being those of the row and group.
    """
    groups = mean.shape[2]
    scale = rstd[:n, :, None, :, None]
    normalised = (_grouped(x[:n], groups) - mean[:n, :, None, :, None]) * scale
    if dgamma.size:
        dbeta[:] = dy[:n].sum(axis=(0, 1, 2), dtype=np.float64)
        dgamma[:] = (dy[:n] * normalised.reshape(x[:n].shape)).sum(axis=(0, 1, 2), dtype=np.float64)
    if dx is not None:
        g = _grouped(dy[:n] * gamma if gamma.size else dy[:n], groups)
        mean_g, mean_gx = (a.mean(axis=(2, 4), dtype=np.float64, keepdims=True) for a in (g, g * normalised))
        dx[:n] = (scale * (g - mean_g - normalised * mean_gx)).reshape(x[:n].shape)


@backward.nest
def backward_nest(n, x, dy, gamma, mean, rstd, dx, dgamma, dbeta, work):
    # work: Σ dy and Σ dy·x̂ of the row, then of all rows of the sample.
    rows, positions, C = x.shape[1], x.shape[2], x.shape[3]
    groups = mean.shape[2]
    members = C // groups
    count = positions * members
    affine = gamma.shape[0] > 0
    for i in prange(n):
        for c in range(2 * C):
            work[i, 2 * C + c] = 0
        for row in range(rows):
            for c in range(2 * C):
                work[i, c] = 0
            for p in range(positions):
                for g in range(groups):
                    middle, scale = mean[i, row, g], rstd[i, row, g]
                    for c in range(g * members, (g + 1) * members):
                        work[i, c] += dy[i, row, p, c]
                        work[i, C + c] += dy[i, row, p, c] * ((x[i, row, p, c] - middle) * scale)
            for c in range(2 * C):
                work[i, 2 * C + c] += work[i, c]
            if dx is not None:
                for g in range(groups):
                    sum_g, sum_gx = 0.0, 0.0
                    for c in range(g * members, (g + 1) * members):
                        factor = gamma[c] if affine else np.float32(1)
                        sum_g += factor * work[i, c]
                        sum_gx += factor * work[i, C + c]
                    mean_g, mean_gx = np.float32(sum_g / count), np.float32(sum_gx / count)
                    middle, scale = mean[i, row, g], rstd[i, row, g]
                    for p in range(positions):
                        for c in range(g * members, (g + 1) * members):
                            factor = gamma[c] if affine else np.float32(1)
                            normalised = (x[i, row, p, c] - middle) * scale
                            dx[i, row, p, c] = scale * (factor * dy[i, row, p, c] - mean_g - normalised * mean_gx)
    if affine:
        for c in range(C):
            sum_dy, sum_dy_x = 0.0, 0.0  # samples are combined in double, in their order
            for i in range(n):
                sum_dy += work[i, 2 * C + c]
                sum_dy_x += work[i, 3 * C + c]
            dbeta[c] = sum_dy
            dgamma[c] = sum_dy_x
