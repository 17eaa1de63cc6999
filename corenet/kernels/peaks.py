"""What the machine could do at best, as two loops: multiply-adds that wait for nothing, and arrays that never stay in a
cache. `corenet bench` measures all else against them.
"""

import numpy as np

from .operation import operation, prange
from .tile import ROWS, tile


@operation
def multiply_adds(n, repeats, a, b, c):
    """c[i] = repeats · Σ_l a[l]·b, for the first n rows of c (chunk, columns); a (steps,), b (columns,)."""
    c[:n] = repeats * (a.sum() * b)


@multiply_adds.nest
def multiply_adds_nest(n, repeats, a, b, c):
    # The tile at its best: b stands still in vector registers, all rows read the same few a, nothing is stored until
    # the end. Were a to stand still, too, some CPUs would have no registers left for the sums.
    columns = b.shape[0]
    a_row = np.zeros(n + ROWS, np.int64)
    c_row = np.empty(n + ROWS, np.int64)
    for m in range(c_row.shape[0]):
        c_row[m] = min(m, n - 1) * columns
    taps, flat_c, zeros = np.zeros(repeats, np.int64), c.reshape(-1), np.zeros(columns, np.float32)
    for m in range(0, n, ROWS):
        tile(a, 0, a_row, m, min(ROWS, n - m), taps, taps, a.shape[0], 1,
             b, 0, 0, flat_c, 0, c_row, columns, zeros, 0)  # fmt: skip


@operation
def triad(n, a, b, c):
    """a = b + 3·c for the first n elements (McCalpin's STREAM): two arrays are read, one is written."""
    a[:n] = b[:n] + 3 * c[:n]


@triad.nest
def triad_nest(n, a, b, c):
    for i in prange(n):
        a[i] = b[i] + np.float32(3) * c[i]
