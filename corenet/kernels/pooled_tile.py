"""The register tile with a max-pool behind it: of a window's sums, in registers, only the largest is stored.

    y[t][j], which[t][j] = max and argmax over place of  Σ_tap Σ_l  a[t, place, tap, l] · b[tap, l][j]     j < cols

Rows of `a` come window by window: the four pixels of a 2×2 window, line by line. Tables and taps are those of
`tile.py`, and so is the order of each sum; largest and first as in `max_tile.py`.
"""

from .intrinsic import make_intrinsic
from .max_tile import beats, store_places
from .operation import device
from .tile import add_products
from .vectors import LANES, NARROW, Vectors

PLACES = 4  # rows of a window


@device
def windows_at_once(rows, near, lanes):
    """Windows whose sums stay in vector registers, where that many rows of the register tile do."""
    if rows < 8:  # a vector takes two registers or four
        return 3 if near and lanes == NARROW and rows > 4 else 1
    return 7 if near else 2  # 28 of 32; without neighbours every row needs a register for its address


def pooled_tile(
    a, a0, a_row, m0, windows, a_tap, b_tap, length, a_step, b, b0, b_step, start, start0, y, which, y0, y_step, cols
):
    """The largest sum of each column and its place, for so many windows from row m0 of the table on, into rows of y and
    which that are y_step apart. Sums begin with start[start0 + j]; all arrays are flat."""
    for t in range(windows):
        for j in range(cols):
            for place in range(PLACES):
                total = start[start0 + j]
                for tap in range(a_tap.shape[0]):
                    for step in range(length):
                        total += (
                            a[a0 + a_row[m0 + t * PLACES + place] + a_tap[tap] + step * a_step]
                            * b[b0 + b_tap[tap] + step * b_step + j]
                        )
                at = y0 + t * y_step + j
                if place == 0 or total > y[at] or (total != total and y[at] == y[at]):
                    y[at], which[at] = total, place


def near_pooled_tile(
    a, a0, a_row, m0, windows, a_tap, b_tap, length, a_step, b, b0, b_step, start, start0, y, which, y0, y_step, cols
):
    """The same where pixels of a line are neighbours in a, those of all windows; windows_at_once of them are there."""
    pooled_tile(
        a,
        a0,
        a_row,
        m0,
        windows,
        a_tap,
        b_tap,
        length,
        a_step,
        b,
        b0,
        b_step,
        start,
        start0,
        y,
        which,
        y0,
        y_step,
        cols,
    )


def make_pooled_tile(rows: int, near: bool):
    """The same as LLVM code for Numba, where that many rows of the register tile fit; a, b, start and y float32."""
    from llvmlite import ir
    from numba.core import cgutils

    def body(code, given):
        builder, number = code.builder, code.number

        def sums(v, count):
            """The sums of the places of so many windows."""
            row = [builder.add(given.m0, number(m)) for m in range(count * PLACES)]
            if near:
                lines = [code.load(given.a_row, row[m]) for m in (0, 2)]
                a_row = [builder.add(lines[m // 2 % 2], number(m // PLACES * 2 + m % 2)) for m in range(len(row))]
            else:
                a_row = [code.load(given.a_row, m) for m in row]
            first = v.load(code.at(given.start, given.start0))
            totals = [cgutils.alloca_once_value(builder, first) for _ in row]
            add_products(code, given, v, a_row, totals)
            return [builder.load(total) for total in totals]

        def columns(v):
            count, kind = windows_at_once(rows, near, v.lanes), ir.VectorType(ir.IntType(32), v.lanes)
            values, places = sums(v, count), [ir.Constant(kind, [place] * v.lanes) for place in range(PLACES)]
            for t in range(count):
                best, winner = values[t * PLACES], places[0]
                for place in range(1, PLACES):
                    value = values[t * PLACES + place]
                    wins = beats(builder, value, best)
                    best, winner = builder.select(wins, value, best), builder.select(wins, places[place], winner)
                with builder.if_then(code.less(number(t), given.windows)):
                    target = builder.add(given.y0, builder.mul(number(t), given.y_step))
                    v.store(best, code.at(given.y, target))
                    store_places(v, winner, code.at(given.which, target))

        with builder.if_else(code.less(given.cols, number(LANES))) as (edge, whole):
            with whole:
                columns(Vectors(builder, LANES))
            with edge:
                columns(Vectors(builder, NARROW, given.cols))

    return make_intrinsic(pooled_tile, body, float32=("a", "b", "start", "y"))
