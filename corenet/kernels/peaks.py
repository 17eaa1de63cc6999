"""What the machine could do at best, as two loops: multiply-adds that never leave the registers, and arrays that never
stay in a cache. `corenet bench` measures all else against them.
"""

import numpy as np

from .operation import operation, prange
from .tile import ROWS, tile


@operation
def multiply_adds(n, steps, a, b, c):
    """c[i] = the sum of `steps` times a[i]·b, for the first n of a (chunk,); b (columns,), c (chunk, columns)."""
    c[:n] = steps * (a[:n, np.newaxis] * b)


@multiply_adds.nest
def multiply_adds_nest(n, steps, a, b, c):
    # The tile with a and b standing still, so that its sums and both factors stay in vector registers.
    columns = b.shape[0]
    a_row = np.empty(n + ROWS, np.int64)
    c_row = np.empty(n + ROWS, np.int64)
    for m in range(a_row.shape[0]):
        a_row[m] = min(m, n - 1)
        c_row[m] = min(m, n - 1) * columns
    one_tap, flat_c, zeros = np.zeros(1, np.int64), c.reshape(-1), np.zeros(columns, np.float32)
    for m in range(0, n, ROWS):
        tile(a, 0, a_row, m, min(ROWS, n - m), one_tap, one_tap, steps, 0,
             b, 0, 0, flat_c, 0, c_row, columns, zeros, 0)  # fmt: skip


@operation
def triad(n, a, b, c):
    """a = b + 3·c for the first n elements (McCalpin's STREAM): two arrays are read, one is written."""
    a[:n] = b[:n] + 3 * c[:n]


@triad.nest
def triad_nest(n, a, b, c):
    for i in prange(n):
        a[i] = b[i] + np.float32(3) * c[i]
