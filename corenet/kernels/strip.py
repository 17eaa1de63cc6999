"""A strip of a matrix: LANES of its columns, copied one row below the other.

Rows that lie a power of two apart meet at few places of the nearest cache and push each other out of it; a strip has
them side by side.
"""

from .tile import LANES
from .vectors import Vectors


def strip(a, a0, a_row, rows, cols, c, c0):
    """Copy `cols` columns (at most LANES) of rows that begin a_row apart to rows that begin LANES apart. Arrays are
    flat."""
    for m in range(rows):
        for j in range(cols):
            c[c0 + m * LANES + j] = a[a0 + m * a_row + j]


def make_strip():
    """`strip` as LLVM code for Numba; float32 only."""
    from llvmlite import ir
    from numba import types
    from numba.core import cgutils
    from numba.extending import intrinsic

    i64 = ir.IntType(64)

    def generate(context, builder, signature, args):
        a, a0, a_row, rows, cols, c, c0 = (
            context.make_array(kind)(context, builder, value=arg).data if isinstance(kind, types.Array) else arg
            for kind, arg in zip(signature.args, args, strict=True)
        )

        def copy(v):
            with cgutils.for_range(builder, rows, intp=i64) as row:
                source = builder.gep(builder.gep(a, [a0]), [builder.mul(row.index, a_row)])
                place = builder.gep(builder.gep(c, [c0]), [builder.mul(row.index, ir.Constant(i64, LANES))])
                v.store(v.load(source), place)

        with builder.if_else(builder.icmp_signed("<", cols, ir.Constant(i64, LANES))) as (edge, whole):
            with whole:
                copy(Vectors(builder, LANES))
            with edge:
                copy(Vectors(builder, LANES, cols))
        return context.get_dummy_value()

    def typed(context, a, a0, a_row, rows, cols, c, c0):
        if a.dtype != types.float32 or c.dtype != types.float32:
            return None
        given = a, a0, a_row, rows, cols, c, c0
        return types.void(*(g if isinstance(g, types.Array) else types.int64 for g in given)), generate

    return intrinsic(typed)
