"""Resampling of images along both axes: enlarging, averaging over a grid, bordering with zeros; and their gradients.

    y[i,p,q,c] = Σ_{h,w}  rows[p,h] · columns[q,w] · x[i,h,w,c]            x (chunk, H, W, C), y (chunk, P, Q, C)

Each of these is a linear map that treats rows and columns alike, so it is two small matrices, and its gradient is the
same operation with the matrices transposed. They are mostly zeros: row p of a matrix is zero outside the columns
bands[p, 0] … bands[p, 1] − 1.
"""

import numpy as np

from .operation import operation, prange


def _apply(matrix, bands, x, axis):
    """Multiply x along an axis by a banded matrix; nothing is read outside the bands, so that NaN stays where it is."""
    x = np.moveaxis(x, axis, 0)
    parts = [np.tensordot(row[low:high], x[low:high], axes=1) for row, (low, high) in zip(matrix, bands, strict=True)]
    return np.moveaxis(np.stack(parts), 0, axis)


@operation
def resample(n, x, y, rows, row_bands, columns, column_bands):
    """y as above: rows (P, H), row_bands (P, 2) int64, columns (Q, W), column_bands (Q, 2) int64, see `bands`."""
    y[:n] = _apply(columns, column_bands, _apply(rows, row_bands, x[:n], 1), 2)


@resample.nest
def resample_nest(n, x, y, rows, row_bands, columns, column_bands):
    C = x.shape[3]
    for i in prange(n):
        for p in range(y.shape[1]):
            for q in range(y.shape[2]):
                for c in range(C):
                    y[i, p, q, c] = 0
                for h in range(row_bands[p, 0], row_bands[p, 1]):
                    for w in range(column_bands[q, 0], column_bands[q, 1]):
                        weight = np.float32(rows[p, h] * columns[q, w])
                        for c in range(C):
                            y[i, p, q, c] += weight * x[i, h, w, c]


def bands(matrix: np.ndarray) -> np.ndarray:
    """Where each row of a matrix (outputs, inputs) is not zero: from its first such element to behind its last."""
    found = np.zeros((len(matrix), 2), np.int64)
    for band, row in zip(found, matrix, strict=True):
        places = np.flatnonzero(row)
        if places.size:
            band[:] = places[0], places[-1] + 1
    return found


def nearest(size: int, scale: int) -> np.ndarray:
    """The matrix (scale·size, size) that repeats each element `scale` times."""
    return np.repeat(np.eye(size), scale, axis=0)


def linear(size: int, scale: int, align_corners: bool) -> np.ndarray:
    """The matrix (scale·size, size) of linear interpolation, PyTorch's conventions.

    Elements are unit lengths with their values in the middle, kept constant beyond the first and last; with
    align_corners they are points, the outer ones of input and output in the same places.
    """
    outputs = np.arange(scale * size)
    if align_corners:
        place = outputs * ((size - 1) / max(1, scale * size - 1))
    else:
        place = np.clip((outputs + 0.5) / scale - 0.5, 0, size - 1)
    before = np.minimum(place.astype(np.int64), size - 1)
    matrix = np.zeros((scale * size, size))
    matrix[outputs, before] = 1 - (place - before)
    matrix[outputs, np.minimum(before + 1, size - 1)] += place - before
    return matrix


def average(size: int, outputs: int) -> np.ndarray:
    """The matrix (outputs, size) of means over windows ⌊p·size/outputs⌋ … ⌈(p+1)·size/outputs⌉ − 1 (PyTorch's)."""
    matrix = np.zeros((outputs, size))
    for p, row in enumerate(matrix):
        low, high = p * size // outputs, -(-(p + 1) * size // outputs)
        row[low:high] = 1 / (high - low)
    return matrix


def border(size: int, before: int, after: int) -> np.ndarray:
    """The matrix (before + size + after, size) that puts zeros around."""
    return np.eye(before + size + after, size, -before)
