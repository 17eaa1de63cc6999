"""Channels of many positions as rows wide enough for vectors.

An image (positions, C) lies in memory as one run of floats. With few channels a loop over C is too short to be fast,
and a sum over positions waits for itself; so loops go over rows of `width` floats, several positions at a time. Numbers
per channel are repeated along a row, and a row of sums is folded at the end. Rows are slices: an index that is a sum
might be negative for all Numba knows, and such loops do not become vectors.
"""

import numpy as np

from .operation import device

WIDE = 256  # floats: long enough for a loop, short enough for the nearest cache


@device
def row_width(C, positions, wide=WIDE):
    """The length of a row of about `wide` floats: whole positions."""
    return C * max(1, min(positions, wide // C))


@device
def repeated(values, width):
    """Numbers per channel (C,), along a row."""
    row = np.empty(width, values.dtype)
    for j in range(width):
        row[j] = values[j % values.shape[0]]
    return row


@device
def folded(row, sums):
    """Sums per channel (C,) from a row of sums, in the order of positions."""
    C = sums.shape[0]
    for c in range(C):
        sums[c] = row[c]
    for start in range(C, row.shape[0], C):
        position = row[start : start + C]
        for c in range(C):
            sums[c] += position[c]
