"""The sparse tile: a sum of rows of b, each with a factor of its own, in registers.

    c[m][j] += Σ_e value[e] · b[b0 + offset[e] + b_row[m] + j]          m < rows, j < cols

In `tile.py` the rows of a tile have factors of their own and share b; here they share the factor, and each has its own
row of b. It serves where most factors are 0 and left out: behind a max-pool only one pixel of each window has a
gradient (`pooled_conv.py`). Each element is one chain of fused multiply-adds in the order of e.
"""

from .tile import LANES, NARROW
from .vectors import Vectors

HEIGHTS = 5, 3  # rows that go together: filters mostly have three or five


def sparse_tile(value, offset, count, b, b0, b_row, rows, c, c0, c_row, cols):
    """Add the first `count` entries of `value` and `offset` to `rows` rows of `cols` columns (at most LANES) of c.

    All arrays are flat.
    """
    for m in range(rows):
        for j in range(cols):
            total = c[c0 + c_row[m] + j]
            for e in range(count):
                total += value[e] * b[b0 + offset[e] + b_row[m] + j]
            c[c0 + c_row[m] + j] = total


def make_sparse_tile():
    """The sparse tile as LLVM code for Numba; float32 only."""
    from llvmlite import ir
    from numba import types
    from numba.core import cgutils
    from numba.extending import intrinsic

    i64 = ir.IntType(64)

    def generate(context, builder, signature, args):
        value, offset, count, b, b0, b_row, rows, c, c0, c_row, cols = (
            context.make_array(kind)(context, builder, value=arg).data if isinstance(kind, types.Array) else arg
            for kind, arg in zip(signature.args, args, strict=True)
        )

        def at(pointer, index):
            return builder.gep(pointer, [index])

        def less(a, b):
            return builder.icmp_signed("<", a, b)

        def body(v, m0, height, whole):
            """Rows m0 … m0 + height of vectors v; unless they are `whole`, those that are not there repeat the last
            one, and are not stored."""
            row = [builder.add(m0, ir.Constant(i64, m)) for m in range(height)]
            if not whole:
                last = builder.sub(rows, ir.Constant(i64, 1))
                row = [builder.select(less(m, last), m, last) for m in row]
            b_offset = [builder.load(at(b_row, m)) for m in row]
            c_place = [at(c, builder.add(c0, builder.load(at(c_row, m)))) for m in row]
            sums = [cgutils.alloca_once_value(builder, v.load(place)) for place in c_place]
            with cgutils.for_range(builder, count, intp=i64) as entry:
                factor = v.splat(builder.load(at(value, entry.index)))
                start = at(b, builder.add(b0, builder.load(at(offset, entry.index))))
                for m in range(height):
                    product = v.fma(factor, v.load(at(start, b_offset[m])), builder.load(sums[m]))
                    builder.store(product, sums[m])
            for m in range(height):
                if whole:
                    v.store(builder.load(sums[m]), c_place[m])
                    continue
                with builder.if_then(less(builder.add(m0, ir.Constant(i64, m)), rows)):
                    v.store(builder.load(sums[m]), c_place[m])

        def by_rows(v):
            """Five rows at a time, then three, then the rest."""
            done = cgutils.alloca_once_value(builder, ir.Constant(i64, 0))
            for height in HEIGHTS:
                left = builder.sub(rows, builder.load(done))
                with cgutils.for_range(builder, builder.sdiv(left, ir.Constant(i64, height)), intp=i64):
                    m0 = builder.load(done)
                    body(v, m0, height, whole=True)
                    builder.store(builder.add(m0, ir.Constant(i64, height)), done)
            m0 = builder.load(done)
            with builder.if_then(less(m0, rows)):
                body(v, m0, HEIGHTS[-1] - 1, whole=False)

        with builder.if_else(less(cols, ir.Constant(i64, LANES))) as (edge, whole):
            with whole:
                by_rows(Vectors(builder, LANES))
            with edge, builder.if_else(less(ir.Constant(i64, NARROW), cols)) as (wide, narrow):
                with wide:
                    by_rows(Vectors(builder, LANES, cols))
                with narrow:
                    by_rows(Vectors(builder, NARROW, cols))
        return context.get_dummy_value()

    def typed(context, value, offset, count, b, b0, b_row, rows, c, c0, c_row, cols):
        given = (value, offset, count, b, b0, b_row, rows, c, c0, c_row, cols)
        wanted = [g if isinstance(g, types.Array) else types.int64 for g in given]
        if not all(g.dtype == types.float32 for g in (value, b, c)):
            return None
        return types.void(*wanted), generate

    return intrinsic(typed)
