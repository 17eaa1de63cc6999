"""The largest of several rows of channels, and which row it came from: the inner loop of max-pooling, in registers.

y[j], which[j] = max and argmax over e of x[offset[e] + j]          e < count, j < cols
"""

from .tile import LANES, NARROW
from .vectors import Vectors


def max_tile(x, x0, offset, number, count, y, which, y0, cols):
    """Of `count` rows of x, at x0 + offset[e], the largest value of each column and number[e] of its row, into y and
    which from y0 on; of equals the first wins, and a NaN wins over everything. All arrays are flat."""
    for j in range(cols):
        best, winner = x[x0 + offset[0] + j], number[0]
        for e in range(1, count):
            value = x[x0 + offset[e] + j]
            if value > best or (value != value and best == best):
                best, winner = value, number[e]
        y[y0 + j], which[y0 + j] = best, winner


def make_max_tile():
    """The same as LLVM code for Numba; x and y float32, which of 8 or 32 bits."""
    from llvmlite import ir
    from numba import types
    from numba.core import cgutils
    from numba.extending import intrinsic

    i64, i32 = ir.IntType(64), ir.IntType(32)

    def generate(context, builder, signature, args):
        x, x0, offset, number, count, y, which, y0, cols = (
            context.make_array(kind)(context, builder, value=arg).data if isinstance(kind, types.Array) else arg
            for kind, arg in zip(signature.args, args, strict=True)
        )
        bits = ir.IntType(signature.args[6].dtype.bitwidth)

        def at(pointer, index):
            return builder.gep(pointer, [index])

        def body(v):
            def row(e):
                return v.load(at(x, builder.add(x0, builder.load(at(offset, e)))))

            numbers = ir.VectorType(i32, v.lanes)
            zero = ir.Constant(i64, 0)
            best = cgutils.alloca_once_value(builder, row(zero))
            winner = cgutils.alloca_once_value(builder, v.splat(builder.load(at(number, zero)), numbers))
            with cgutils.for_range(builder, count, start=ir.Constant(i64, 1), intp=i64) as entry:
                value, so_far = row(entry.index), builder.load(best)
                larger = builder.fcmp_unordered(">", value, so_far)  # or one of them is NaN
                wins = builder.and_(larger, builder.fcmp_ordered("ord", so_far, so_far))
                this = v.splat(builder.load(at(number, entry.index)), numbers)
                builder.store(builder.select(wins, value, so_far), best)
                builder.store(builder.select(wins, this, builder.load(winner)), winner)
            v.store(builder.load(best), at(y, y0))
            places = builder.load(winner)
            v.store(places if bits == i32 else builder.trunc(places, ir.VectorType(bits, v.lanes)), at(which, y0))

        with builder.if_else(builder.icmp_signed("<", cols, ir.Constant(i64, LANES))) as (edge, whole):
            with whole:
                body(Vectors(builder, LANES))
            with edge, builder.if_else(builder.icmp_signed("<", ir.Constant(i64, NARROW), cols)) as (wide, narrow):
                with wide:
                    body(Vectors(builder, LANES, cols))
                with narrow:
                    body(Vectors(builder, NARROW, cols))
        return context.get_dummy_value()

    def typed(context, x, x0, offset, number, count, y, which, y0, cols):
        given = x, x0, offset, number, count, y, which, y0, cols
        if x.dtype != types.float32 or y.dtype != types.float32:
            return None
        return types.void(*(g if isinstance(g, types.Array) else types.int64 for g in given)), generate

    return intrinsic(typed)
