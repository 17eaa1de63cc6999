"""Calls of a tile of the C library, for `test_tile_c.py`; and such calls with every array at the edge of a page, in a
process of its own, since touching what lies beyond ends it.

    python tile_calls.py avx2
"""

import sys
from itertools import product

import numpy as np
from guarded import at_the_edge

from corenet.kernels import native
from corenet.kernels.tile import LANES

ROWS = 8  # of the arrays below: at least as many as any tile has


class Call:
    """The arguments of one call in the order of `tile.tile`; rows, taps and steps lie anywhere, on purpose.

    What may not be read is NaN, the arrays end with what may be, and begin at any float.
    """

    def __init__(self, rng, rows: int, cols: int, taps: int, given: bool, near: bool, length: int):
        self.rows, self.near, self.given = rows, near, given
        a_step, b_step = int(rng.integers(1, 4)), cols + int(rng.integers(0, 3))
        m0, a0, b0, c0, start0 = rng.integers(0, 4, 5).tolist()
        row, a_tap, b_tap = rng.integers(0, 30, ROWS), rng.integers(0, 40, taps), rng.integers(0, 40, taps)
        if near:
            row = row[0] + np.arange(ROWS)
        a_row = np.concatenate([np.full(m0, 10**9), row[:rows]])
        c_row = np.concatenate([np.full(m0, 10**9), rng.permutation(rows) * (cols + int(rng.integers(0, 3)))])
        steps = np.arange(length)
        a_at = (a0 + row[:rows, None, None] + a_tap[:, None] + steps * a_step).ravel()
        b_at = (b0 + b_tap[:, None, None] + (steps * b_step)[:, None] + np.arange(cols)).ravel()
        c_at = (c0 + c_row[m0:, None] + np.arange(cols)).ravel()
        a, b, c, start = (
            self.filled(rng, at) for at in (a_at, b_at, np.zeros(0, int) if given else c_at, start0 + np.arange(cols))
        )
        c = np.concatenate([c, np.full(c_at.max() + 1 - c.size, np.nan, np.float32)])
        self.args = [
            a, a0, a_row, m0, rows, a_tap, b_tap, length, a_step, b, b0, b_step, c, c0, c_row, cols,
            start if given else np.empty(0, np.float32), start0,
        ]  # fmt: skip

    @staticmethod
    def filled(rng, places: np.ndarray) -> np.ndarray:
        array = np.full(places.max(initial=-1) + 1, np.nan, np.float32)
        array[places] = rng.standard_normal(places.size)
        return array


def calls(rows: int) -> list[Call]:
    """Every number of rows, columns and taps, with a start and without."""
    rng = np.random.default_rng(rows)
    lengths = [0, 1, 1, 2, 2, 5, 5, 8, 8]
    return [
        Call(rng, m, cols, taps, bool(given), bool(rng.integers(2)), int(rng.choice(lengths)))
        for m, cols, taps, given in product(range(1, rows + 1), range(1, LANES + 1), range(4), range(2))
    ]


def c_tile(name: str, near: bool):
    """The C function, called as `tile.tile` is."""
    chosen = native.lib.corenet_tile_select(name.encode())
    function = chosen.near if near else chosen.any

    def run(a, a0, a_row, m0, rows, a_tap, b_tap, length, a_step, b, b0, b_step, c, c0, c_row, cols, start, start0):
        def at(array, offset=0):
            kind = "float *" if array.dtype == np.float32 else "int64_t *"
            return native.ffi.cast(kind, array.ctypes.data + array.itemsize * offset)

        begin = at(start, start0) if start.size else native.ffi.NULL
        function(
            at(a, a0), at(a_row, m0), rows, at(a_tap), at(b_tap), len(a_tap), length, a_step, at(b, b0), b_step,
            at(c, c0), at(c_row, m0), cols, begin,
        )  # fmt: skip

    return run


def main(name: str) -> None:
    for call in calls(native.tile(name).rows)[::3]:
        for after in (True, False):
            c_tile(name, call.near)(
                *(at_the_edge(a, after) if isinstance(a, np.ndarray) and a.size else a for a in call.args)
            )


if __name__ == "__main__":
    main(sys.argv[1])
