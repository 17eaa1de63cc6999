"""A strip of a matrix: LANES of its columns, copied one row below the other.

Rows that lie a power of two apart meet at few places of the nearest cache and push each other out of it; a strip has
them side by side.
"""

from .intrinsic import make_intrinsic
from .vectors import LANES, Vectors


def strip(a, a0, a_row, rows, cols, c, c0):
    """Copy `cols` columns (at most LANES) of rows that begin a_row apart to rows that begin LANES apart. Arrays are
    flat."""
    for m in range(rows):
        for j in range(cols):
            c[c0 + m * LANES + j] = a[a0 + m * a_row + j]


def make_strip():
    """`strip` as LLVM code for Numba; float32 only."""
    from numba.core import cgutils

    def body(code, given):
        builder = code.builder

        def copy(v):
            with cgutils.for_range(builder, given.rows, intp=code.i64) as row:
                source = code.at(given.a, given.a0, builder.mul(row.index, given.a_row))
                v.store(v.load(source), code.at(given.c, given.c0, builder.mul(row.index, code.number(LANES))))

        with builder.if_else(code.less(given.cols, code.number(LANES))) as (edge, whole):
            with whole:
                copy(Vectors(builder, LANES))
            with edge:
                copy(Vectors(builder, LANES, given.cols))

    return make_intrinsic(strip, body, float32=("a", "c"))
