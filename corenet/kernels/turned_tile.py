"""The turned tile: a product of rows of a and columns of b, stored with its rows as columns.

    c[j][m] = Σ_l  a[m][l] · b[l][j]          m < rows, j < cols

The gradient of a dense layer's input, dx = dy·wᵀ, has its sums along rows of w as it lies; the samples are the vector
(j). The register tile (`tile.py`) would give dxᵀ. Here a square of sums is turned in registers before it is stored, by
log₂ of its side steps of exchanging halves. Each element is one chain of fused multiply-adds in the order of l.
"""

from .tile import LANES
from .vectors import Vectors


def side_for(rows: int) -> int:
    """The side of the square for a CPU that holds so many rows of LANES floats in registers: as many vectors."""
    return LANES if rows >= 8 else LANES // 2 if rows >= 5 else LANES // 4


def turned_tile(a, a0, a_row, rows, b, b0, b_step, steps, c, c0, c_row, cols):
    """Rows of a are a_row apart, rows of b b_step and of c c_row; of b there are padded(cols, LANES) columns to read.
    All arrays are flat."""
    for j in range(cols):
        for m in range(rows):
            total = c.dtype.type(0)
            for step in range(steps):
                total += a[a0 + m * a_row + step] * b[b0 + step * b_step + j]
            c[c0 + j * c_row + m] = total


def _turned(builder, values):
    """The columns of a square of vectors, as vectors: bit by bit of the column's number is exchanged with the row's."""
    from llvmlite import ir

    side = len(values)
    distance = side // 2
    while distance:
        low = [lane if not lane & distance else lane - distance + side for lane in range(side)]
        high = [lane + distance if not lane & distance else lane + side for lane in range(side)]
        masks = [ir.Constant(ir.VectorType(ir.IntType(32), side), lanes) for lanes in (low, high)]
        for m in range(side):
            if not m & distance:
                pair = values[m], values[m + distance]
                values[m], values[m + distance] = (builder.shuffle_vector(*pair, mask) for mask in masks)
        distance //= 2
    return values


def make_turned_tile(rows: int):
    """The turned tile as LLVM code for Numba, on a CPU that holds so many rows of LANES floats in registers; float32
    only."""
    from llvmlite import ir
    from numba import types
    from numba.core import cgutils
    from numba.extending import intrinsic

    i64, side = ir.IntType(64), side_for(rows)

    def generate(context, builder, signature, args):
        a, a0, a_row, rows, b, b0, b_step, steps, c, c0, c_row, cols = (
            context.make_array(kind)(context, builder, value=arg).data if isinstance(kind, types.Array) else arg
            for kind, arg in zip(signature.args, args, strict=True)
        )

        def number(value):
            return ir.Constant(i64, value)

        def at(pointer, *offsets):
            for offset in offsets:
                pointer = builder.gep(pointer, [offset])
            return pointer

        def less(x, y):
            return builder.icmp_signed("<", x, y)

        def square(m0, j0, whole):
            """Rows from m0 and columns from j0 on; unless its rows are `whole`, those that are not there repeat the
            last one, and are not stored."""
            v, left = Vectors(builder, side), builder.sub(rows, m0)
            out = v if whole else Vectors(builder, side, left)
            row = [number(m) for m in range(side)]
            if not whole:
                row = [builder.select(less(m, left), m, builder.sub(left, number(1))) for m in row]
            a_place = [at(a, a0, builder.mul(builder.add(m0, m), a_row)) for m in row]
            b_place = at(b, b0, j0)
            sums = [cgutils.alloca_once_value(builder, ir.Constant(v.kind, None)) for _ in row]
            with cgutils.for_range(builder, steps, intp=i64) as step:
                factor = v.load(at(b_place, builder.mul(step.index, b_step)))
                for m in range(side):
                    value = v.splat(builder.load(at(a_place[m], step.index)))
                    builder.store(v.fma(value, factor, builder.load(sums[m])), sums[m])
            columns = _turned(builder, [builder.load(total) for total in sums])
            c_place = at(c, c0, m0)
            there = builder.sub(cols, j0)
            with builder.if_else(less(there, number(side))) as (some, every):
                for block, all_there in ((every, True), (some, False)):
                    with block:
                        for j in range(side):
                            place = at(c_place, builder.mul(builder.add(j0, number(j)), c_row))
                            if all_there:
                                out.store(columns[j], place)
                                continue
                            with builder.if_then(less(number(j), there)):
                                out.store(columns[j], place)

        def up(value):
            return builder.sdiv(builder.add(value, number(side - 1)), number(side))

        with cgutils.for_range(builder, up(rows), intp=i64) as down:
            m0 = builder.mul(down.index, number(side))
            with cgutils.for_range(builder, up(cols), intp=i64) as across:
                j0 = builder.mul(across.index, number(side))
                with builder.if_else(less(rows, builder.add(m0, number(side)))) as (edge, whole):
                    with whole:
                        square(m0, j0, whole=True)
                    with edge:
                        square(m0, j0, whole=False)
        return context.get_dummy_value()

    def typed(context, a, a0, a_row, rows, b, b0, b_step, steps, c, c0, c_row, cols):
        given = a, a0, a_row, rows, b, b0, b_step, steps, c, c0, c_row, cols
        if not all(g.dtype == types.float32 for g in (a, b, c)):
            return None
        return types.void(*(g if isinstance(g, types.Array) else types.int64 for g in given)), generate

    return intrinsic(typed)
