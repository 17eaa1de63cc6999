"""The register tile with a max-pool behind it: of a window's sums, in registers, only the largest is stored.

    y[t][j], which[t][j] = max and argmax over place of  Σ_tap Σ_l  a[t, place, tap, l] · b[tap, l][j]     j < cols

Rows of `a` come window by window: the four pixels of a 2×2 window, line by line. Tables and taps are those of
`tile.py`, and so is the order of each sum; largest and first as in `max_tile.py`.
"""

import functools
import inspect

from .operation import device
from .tile import LANES, NARROW
from .vectors import Vectors

PLACES = 4  # rows of a window


@device
def windows_at_once(rows, near, lanes):
    """Windows whose sums stay in vector registers, where that many rows of the register tile do."""
    if rows < 8:  # a vector takes two registers or four
        return 3 if near and lanes == NARROW and rows > 4 else 1
    return 7 if near else 2  # 28 of 32; without neighbours every row needs a register for its address


def pooled_tile(
    a, a0, a_row, m0, windows, a_tap, b_tap, length, b, b0, b_step, start, start0, y, which, y0, y_step, cols
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
                            a[a0 + a_row[m0 + t * PLACES + place] + a_tap[tap] + step]
                            * b[b0 + b_tap[tap] + step * b_step + j]
                        )
                at = y0 + t * y_step + j
                if place == 0 or total > y[at] or (total != total and y[at] == y[at]):
                    y[at], which[at] = total, place


def near_pooled_tile(
    a, a0, a_row, m0, windows, a_tap, b_tap, length, b, b0, b_step, start, start0, y, which, y0, y_step, cols
):
    """The same where pixels of a line are neighbours in a, those of all windows; windows_at_once of them are there."""
    pooled_tile(
        a, a0, a_row, m0, windows, a_tap, b_tap, length, b, b0, b_step, start, start0, y, which, y0, y_step, cols
    )


def make_pooled_tile(rows: int, near: bool):
    """The same as LLVM code for Numba, where that many rows of the register tile fit; a, b, start and y float32."""
    from llvmlite import ir
    from numba import types
    from numba.core import cgutils
    from numba.extending import intrinsic

    i64, i32 = ir.IntType(64), ir.IntType(32)
    names = list(inspect.signature(pooled_tile).parameters)

    def generate(context, builder, signature, args):
        arg = dict(zip(names, args, strict=True))
        kinds = dict(zip(names, signature.args, strict=True))
        arrays = {
            name: context.make_array(kind)(context, builder, value=arg[name])
            for name, kind in kinds.items()
            if isinstance(kind, types.Array)
        }
        arg |= {name: array.data for name, array in arrays.items()}
        taps = builder.extract_value(arrays["a_tap"].shape, 0)

        def at(name, *offsets):
            """The place of an array's element, its index being a sum."""
            pointer = arg[name] if isinstance(name, str) else name
            return builder.gep(pointer, [functools.reduce(builder.add, offsets)])

        def sums_of(v, count):
            """The sums of the places of so many windows."""
            row = [builder.add(arg["m0"], ir.Constant(i64, m)) for m in range(count * PLACES)]
            if near:
                line = [builder.load(at("a_row", row[m])) for m in (0, 2)]
                row_at = [
                    builder.add(line[m // 2 % 2], ir.Constant(i64, m // PLACES * 2 + m % 2)) for m in range(len(row))
                ]
            else:
                row_at = [builder.load(at("a_row", m)) for m in row]
            first = v.load(at("start", arg["start0"]))
            sums = [cgutils.alloca_once_value(builder, first) for _ in row]
            with cgutils.for_range(builder, taps, intp=i64) as tap:
                a_base = builder.add(arg["a0"], builder.load(at("a_tap", tap.index)))
                b_base = at("b", arg["b0"], builder.load(at("b_tap", tap.index)))
                a_of = [at("a", a_base, offset) for offset in row_at]
                with cgutils.for_range(builder, arg["length"], intp=i64) as step:
                    b_row = v.load(at(b_base, builder.mul(step.index, arg["b_step"])))
                    for total, place in zip(sums, a_of, strict=True):
                        value = v.splat(builder.load(at(place, step.index)))
                        builder.store(v.fma(value, b_row, builder.load(total)), total)
            return [builder.load(total) for total in sums]

        def body(v):
            count = windows_at_once(rows, near, v.lanes)
            sums, numbers = sums_of(v, count), ir.VectorType(i32, v.lanes)
            bits = ir.VectorType(ir.IntType(kinds["which"].dtype.bitwidth), v.lanes)
            for t in range(count):
                best, winner = sums[t * PLACES], v.splat(ir.Constant(i32, 0), numbers)
                for place in range(1, PLACES):
                    value = sums[t * PLACES + place]
                    larger = builder.fcmp_unordered(">", value, best)  # or one of them is NaN
                    wins = builder.and_(larger, builder.fcmp_ordered("ord", best, best))
                    best = builder.select(wins, value, best)
                    winner = builder.select(wins, v.splat(ir.Constant(i32, place), numbers), winner)
                with builder.if_then(builder.icmp_signed("<", ir.Constant(i64, t), arg["windows"])):
                    target = builder.add(arg["y0"], builder.mul(ir.Constant(i64, t), arg["y_step"]))
                    v.store(best, at("y", target))
                    v.store(winner if bits == numbers else builder.trunc(winner, bits), at("which", target))

        with builder.if_else(builder.icmp_signed("<", arg["cols"], ir.Constant(i64, LANES))) as (edge, whole):
            with whole:
                body(Vectors(builder, LANES))
            with edge:
                body(Vectors(builder, NARROW, arg["cols"]))
        return context.get_dummy_value()

    def typed(
        context, a, a0, a_row, m0, windows, a_tap, b_tap, length, b, b0, b_step, start, start0, y, which, y0, y_step,
        cols,
    ):  # fmt: skip
        given = (
            a, a0, a_row, m0, windows, a_tap, b_tap, length, b, b0, b_step, start, start0, y, which, y0, y_step, cols
        )  # fmt: skip
        if not all(g.dtype == types.float32 for g in (a, b, start, y)):
            return None
        return types.void(*(g if isinstance(g, types.Array) else types.int64 for g in given)), generate

    return intrinsic(typed)
