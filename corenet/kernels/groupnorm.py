"""Normalisation of each sample by itself, in groups of channels (Wu & He 2018) or over a layer (Ba et al. 2016).

    y = gamma · (x − mean) / sqrt(var + eps) + beta            var biased, as in batch norm

Arrays are (chunk, rows, positions, C), mean and rstd (chunk, rows, G): statistics are of each row of each sample, and
each of G groups of C/G neighbouring channels, over all positions. Group norm has one row, and the pixels as positions;
layer norm has one group and one position, the normalised axes as channels and the others as rows. gamma and beta are
(C,), or (0,) for neither. A sample's statistics are its own, and so do not depend on chunks or workers.
"""

import numpy as np

from .operation import device, operation, prange


def _grouped(x, groups):
    """(n, rows, positions, C) as (n, rows, positions, groups, C/groups)."""
    return x.reshape(*x.shape[:3], groups, -1)


@operation
def forward(n, x, gamma, beta, y, mean, rstd, work, eps):
    """Normalise x into y; mean and rstd = 1/sqrt(var + eps) are kept for backward; work (chunk, 4·C): scratch."""
    grouped = _grouped(x[:n], mean.shape[2])
    mean[:n] = grouped.mean(axis=(2, 4), dtype=np.float64)
    centred = grouped - mean[:n, :, None, :, None]
    rstd[:n] = 1 / np.sqrt(np.square(centred, dtype=np.float64).mean(axis=(2, 4)) + eps)
    normalised = (centred * rstd[:n, :, None, :, None]).reshape(x[:n].shape)
    y[:n] = normalised * gamma + beta if gamma.size else normalised


@device
def double_sum(work, i, low, high):
    """Σ work[i, low … high − 1] in double, in four chains, which a processor adds at the same time."""
    a, b, c, d = 0.0, 0.0, 0.0, 0.0
    end = low + (high - low) // 4 * 4
    for j in range(low, end, 4):
        a += work[i, j]
        b += work[i, j + 1]
        c += work[i, j + 2]
        d += work[i, j + 3]
    for j in range(end, high):
        a += work[i, j]
    return (a + b) + (c + d)


@forward.nest
def forward_nest(n, x, gamma, beta, y, mean, rstd, work, eps):
    # work: a sum, then mean, factor and beta, of each channel, so that the loops over pixels run along all channels.
    rows, positions, C = x.shape[1], x.shape[2], x.shape[3]
    groups = mean.shape[2]
    members = C // groups
    count = positions * members
    affine = gamma.shape[0] > 0
    for i in prange(n):
        for c in range(C):
            work[i, 3 * C + c] = beta[c] if affine else np.float32(0)
        for row in range(rows):
            for c in range(C):
                work[i, c] = 0
            for p in range(positions):
                for c in range(C):
                    work[i, c] += x[i, row, p, c]
            for g in range(groups):
                low, high = g * members, (g + 1) * members
                mean[i, row, g] = double_sum(work, i, low, high) / count
                for c in range(low, high):
                    work[i, C + c] = mean[i, row, g]
                    work[i, c] = 0
            for p in range(positions):
                for c in range(C):
                    work[i, c] += (x[i, row, p, c] - work[i, C + c]) * (x[i, row, p, c] - work[i, C + c])
            for g in range(groups):
                low, high = g * members, (g + 1) * members
                rstd[i, row, g] = 1 / np.sqrt(double_sum(work, i, low, high) / count + eps)
                for c in range(low, high):
                    work[i, 2 * C + c] = rstd[i, row, g] * gamma[c] if affine else rstd[i, row, g]
            for p in range(positions):
                for c in range(C):
                    y[i, row, p, c] = (x[i, row, p, c] - work[i, C + c]) * work[i, 2 * C + c] + work[i, 3 * C + c]


@operation
def backward(n, x, dy, gamma, mean, rstd, dx, dgamma, dbeta, work):
    """Gradients through the normalisation and its statistics; work (chunk, 7·C) is scratch, dx may be None.

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
    # work, of each channel: Σ dy and Σ dy·x̂ of the row, which then give way to the means of the group; the same sums of
    # all rows; mean, rstd, gamma.
    rows, positions, C = x.shape[1], x.shape[2], x.shape[3]
    groups = mean.shape[2]
    members = C // groups
    count = positions * members
    affine = gamma.shape[0] > 0
    for i in prange(n):
        for c in range(C):
            work[i, 2 * C + c] = 0
            work[i, 3 * C + c] = 0
            work[i, 6 * C + c] = gamma[c] if affine else np.float32(1)
        for row in range(rows):
            for c in range(2 * C):
                work[i, c] = 0
            for g in range(groups):
                for c in range(g * members, (g + 1) * members):
                    work[i, 4 * C + c] = mean[i, row, g]
                    work[i, 5 * C + c] = rstd[i, row, g]
            for p in range(positions):
                for c in range(C):
                    normalised = (x[i, row, p, c] - work[i, 4 * C + c]) * work[i, 5 * C + c]
                    work[i, c] += dy[i, row, p, c]
                    work[i, C + c] += dy[i, row, p, c] * normalised
            for c in range(2 * C):
                work[i, 2 * C + c] += work[i, c]
            if dx is not None:
                for c in range(C):
                    work[i, c] *= work[i, 6 * C + c]
                    work[i, C + c] *= work[i, 6 * C + c]
                for g in range(groups):
                    low, high = g * members, (g + 1) * members
                    mean_g = np.float32(double_sum(work, i, low, high) / count)
                    mean_gx = np.float32(double_sum(work, i, C + low, C + high) / count)
                    for c in range(low, high):
                        work[i, c] = mean_g
                        work[i, C + c] = mean_gx
                for p in range(positions):
                    for c in range(C):
                        normalised = (x[i, row, p, c] - work[i, 4 * C + c]) * work[i, 5 * C + c]
                        centred = work[i, 6 * C + c] * dy[i, row, p, c] - work[i, c]
                        dx[i, row, p, c] = work[i, 5 * C + c] * (centred - normalised * work[i, C + c])
    if affine:
        for c in range(C):
            sum_dy, sum_dy_x = 0.0, 0.0  # samples are combined in double, in their order
            for i in range(n):
                sum_dy += work[i, 2 * C + c]
                sum_dy_x += work[i, 3 * C + c]
            dbeta[c] = sum_dy
            dgamma[c] = sum_dy_x
