"""The largest of several rows of channels, and which row it came from: the inner loop of max-pooling, in registers.

y[j], which[j] = max and argmax over e of x[offset[e] + j]          e < count, j < cols
"""

from .intrinsic import make_intrinsic


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
    from numba.core import cgutils

    def body(code, given):
        builder = code.builder

        def columns(v):
            def row(e):
                return v.load(code.at(given.x, builder.add(given.x0, code.load(given.offset, e))))

            def place(e):
                return v.splat(code.load(given.number, e), ir.VectorType(ir.IntType(32), v.lanes))

            first = code.number(0)
            best, winner = (
                cgutils.alloca_once_value(builder, row(first)),
                cgutils.alloca_once_value(builder, place(first)),
            )
            with cgutils.for_range(builder, given.count, start=code.number(1), intp=code.i64) as entry:
                value, so_far = row(entry.index), builder.load(best)
                wins = beats(builder, value, so_far)
                builder.store(builder.select(wins, value, so_far), best)
                builder.store(builder.select(wins, place(entry.index), builder.load(winner)), winner)
            v.store(builder.load(best), code.at(given.y, given.y0))
            store_places(v, builder.load(winner), code.at(given.which, given.y0))

        code.by_columns(given.cols, columns)

    return make_intrinsic(max_tile, body, float32=("x", "y"))


def beats(builder, value, best):
    """Where value is larger than the best so far, or the first NaN."""
    larger = builder.fcmp_unordered(">", value, best)  # or one of them is NaN
    return builder.and_(larger, builder.fcmp_ordered("ord", best, best))


def store_places(v, places, target):
    """Write vectors of 32-bit numbers to where they have as many bits, or fewer."""
    from llvmlite import ir

    kind = ir.VectorType(target.type.pointee, v.lanes)
    v.store(places if kind == places.type else v.builder.trunc(places, kind), target)
