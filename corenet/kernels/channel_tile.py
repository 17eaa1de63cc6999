"""Tiles of pixels × channels, where every channel has numbers of its own: the inner loops of depthwise convolution.

    channel_tile    y[p][j]  = start[j] + Σ_line Σ_tap  x[p, line, tap][j] · w[line, tap][j]      one line of pixels p
    channel_sums    c[m][j] += Σ_line Σ_p               x[line, p, tap m][j] · y[line, p][j]      all taps m

Nothing is summed over channels, so they are the vector (j), and the sums that stay in registers are those of a few
neighbouring pixels, or of a filter's taps: numbers of w serve all of these pixels, numbers of y all of these taps. Each
element is one chain of fused multiply-adds in the order (line, tap) or (line, p), wherever a tile's borders lie.
"""

import inspect

from .tile import LANES, NARROW
from .vectors import Vectors


def channel_tile(
    x, x0, x_step, x_line, w, w0, w_line, first, lines, taps, x_tap, w_tap, y, y0, y_step, pixels, cols, start, start0
):
    """Sums over `lines` entries of x_line and w_line from the first, and over taps that are x_tap and w_tap apart, for
    pixels that are x_step and y_step apart and `cols` channels (at most LANES). All arrays are flat."""
    for p in range(pixels):
        for j in range(cols):
            total = start[start0 + j]
            for line in range(first, first + lines):
                for tap in range(taps):
                    total += (
                        x[x0 + p * x_step + x_line[line] + tap * x_tap + j] * w[w0 + w_line[line] + tap * w_tap + j]
                    )  # fmt: skip
            y[y0 + p * y_step + j] = total


def channel_sums(
    x, x0, x_line, x_step, x_tap, y, y0, y_line, y_step, lines, pixels, c, c0, c_row, m0, rows, cols
):  # fmt: skip
    """Add to `rows` rows of c, c_row apart, the sums over lines and pixels of y's numbers, times those of x that are
    x_tap[m] further, m from m0 on, for `cols` channels (at most LANES). All arrays are flat."""
    for m in range(rows):
        for j in range(cols):
            total = c[c0 + m * c_row + j]
            for line in range(lines):
                for p in range(pixels):
                    total += (
                        x[x0 + x_tap[m0 + m] + line * x_line + p * x_step + j] * y[y0 + line * y_line + p * y_step + j]
                    )  # fmt: skip
            c[c0 + m * c_row + j] = total


class _Code:
    """What both tiles' code begins with: arguments by name, arrays as pointers to their first element."""

    def __init__(self, function, context, builder, signature, args):
        from llvmlite import ir
        from numba import types

        self.builder, self.i64 = builder, ir.IntType(64)
        for name, kind, arg in zip(inspect.signature(function).parameters, signature.args, args, strict=True):
            array = isinstance(kind, types.Array)
            setattr(self, name, context.make_array(kind)(context, builder, value=arg).data if array else arg)

    def number(self, value):
        from llvmlite import ir

        return ir.Constant(self.i64, value)

    def at(self, pointer, *offsets):
        for offset in offsets:
            pointer = self.builder.gep(pointer, [offset])
        return pointer

    def opaque(self, value):
        """The same integer, of which LLVM knows nothing: else it would step a pointer for each row of a tile through
        a loop, in memory since registers do not suffice, instead of adding one offset to all."""
        from llvmlite import ir

        return self.builder.asm(ir.FunctionType(self.i64, [self.i64]), "", "=r,0", [value], side_effect=False)

    def less(self, a, b):
        return self.builder.icmp_signed("<", a, b)

    def smaller(self, a, b):
        return self.builder.select(self.less(a, b), a, b)

    def by_columns(self, cols, body):
        """The code of body(vectors) for whole vectors, for some of their columns, and for few."""
        with self.builder.if_else(self.less(cols, self.number(LANES))) as (edge, whole):
            with whole:
                body(Vectors(self.builder, LANES))
            with edge, self.builder.if_else(self.less(self.number(NARROW), cols)) as (wide, narrow):
                with wide:
                    body(Vectors(self.builder, LANES, cols))
                with narrow:
                    body(Vectors(self.builder, NARROW, cols))


def _intrinsic(function, body):
    """The intrinsic with that function's arguments and the code that body(_Code) makes; float32 only."""
    from numba import types
    from numba.extending import intrinsic

    def generate(context, builder, signature, args):
        body(_Code(function, context, builder, signature, args))
        return context.get_dummy_value()

    def typed(context, *given):
        if any(isinstance(g, types.Array) and g.dtype not in (types.float32, types.int64) for g in given):
            return None
        return types.void(*(g if isinstance(g, types.Array) else types.int64 for g in given)), generate

    typed.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD)
         for name in ("context", *inspect.signature(function).parameters)]
    )  # fmt: skip
    return intrinsic(typed)


def make_channel_tile(rows: int):
    """`channel_tile` as LLVM code for Numba, on a CPU that holds so many rows of LANES floats in registers."""
    from numba.core import cgutils

    half = max(1, rows // 2)

    def body(g):
        builder, number = g.builder, g.number

        def some(v, p0, height):
            """Pixels p0 … p0 + height."""
            pixel = [builder.add(p0, number(m)) for m in range(height)]
            x_place = g.at(g.x, g.x0, builder.mul(p0, g.x_step))
            in_four, four = [builder.mul(number(m), g.x_step) for m in range(4)], builder.mul(number(4), g.x_step)
            begin = v.load(g.at(g.start, g.start0))
            sums = [cgutils.alloca_once_value(builder, begin) for _ in pixel]
            with cgutils.for_range(builder, g.lines, intp=g.i64) as line:
                entry = builder.add(g.first, line.index)
                x_line, w_line = (builder.load(g.at(table, entry)) for table in (g.x_line, g.w_line))
                with cgutils.for_range(builder, g.taps, intp=g.i64) as tap:
                    factor = v.load(g.at(g.w, g.w0, w_line, builder.mul(tap.index, g.w_tap)))
                    place = g.at(x_place, g.opaque(builder.add(x_line, builder.mul(tap.index, g.x_tap))))
                    for m in range(height):
                        if m and m % 4 == 0:
                            place = g.at(place, four)
                        value = v.load(g.at(place, in_four[m % 4]))
                        builder.store(v.fma(value, factor, builder.load(sums[m])), sums[m])
            for m, p in enumerate(pixel):
                v.store(builder.load(sums[m]), g.at(g.y, g.y0, builder.mul(p, g.y_step)))

        def all_pixels(v):
            whole = builder.sdiv(g.pixels, number(rows))
            with cgutils.for_range(builder, whole, intp=g.i64) as part:
                some(v, builder.mul(part.index, number(rows)), rows)
            done = builder.mul(whole, number(rows))
            left = builder.sub(g.pixels, done)
            with builder.if_else(g.less(g.pixels, number(half))) as (few, many):
                with few, cgutils.for_range(builder, left, intp=g.i64) as part:
                    some(v, part.index, 1)
                with many:
                    # The last ones overlap those before, and are written twice: the same numbers.
                    halves = builder.sdiv(builder.add(left, number(half - 1)), number(half))
                    with cgutils.for_range(builder, halves, intp=g.i64) as part:
                        p0 = builder.add(done, builder.mul(part.index, number(half)))
                        some(v, g.smaller(p0, builder.sub(g.pixels, number(half))), half)

        g.by_columns(g.cols, all_pixels)

    return _intrinsic(channel_tile, body)


def make_channel_sums(rows: int):
    """`channel_sums` as LLVM code for Numba, on a CPU that holds so many rows of LANES floats in registers."""
    from numba.core import cgutils

    high = 9 if rows > 7 else rows  # a 3×3 filter at once, where that fits
    low = (high + 1) // 2

    def body(g):
        builder, number = g.builder, g.number

        def some(v, first, height, whole):
            """Rows from the first on; unless they are `whole`, those that are not there repeat the last one, and are
            not stored."""
            row = [builder.add(first, number(m)) for m in range(height)]
            if not whole:
                row = [g.smaller(m, builder.sub(g.rows, number(1))) for m in row]
            c_place = [g.at(g.c, g.c0, builder.mul(m, g.c_row)) for m in row]
            x_place = [g.at(g.x, g.x0, builder.load(g.at(g.x_tap, g.m0, m))) for m in row]
            sums = [cgutils.alloca_once_value(builder, v.load(place)) for place in c_place]
            with cgutils.for_range(builder, g.lines, intp=g.i64) as line:
                x_line, y_line = builder.mul(line.index, g.x_line), builder.mul(line.index, g.y_line)
                with cgutils.for_range(builder, g.pixels, intp=g.i64) as pixel:
                    factor = v.load(g.at(g.y, g.y0, y_line, builder.mul(pixel.index, g.y_step)))
                    offset = g.opaque(builder.add(x_line, builder.mul(pixel.index, g.x_step)))
                    for m in range(height):
                        builder.store(v.fma(v.load(g.at(x_place[m], offset)), factor, builder.load(sums[m])), sums[m])
            for m in range(height):
                if whole:
                    v.store(builder.load(sums[m]), c_place[m])
                    continue
                with builder.if_then(g.less(builder.add(first, number(m)), g.rows)):
                    v.store(builder.load(sums[m]), c_place[m])

        def all_rows(v):
            parts = builder.sdiv(g.rows, number(high))
            with cgutils.for_range(builder, parts, intp=g.i64) as part:
                some(v, builder.mul(part.index, number(high)), high, whole=True)
            done = builder.mul(parts, number(high))
            left = builder.sub(g.rows, done)
            with builder.if_else(g.less(number(low), left)) as (most, few):
                with most:
                    some(v, done, high, whole=False)
                with few, builder.if_then(g.less(number(0), left)):
                    some(v, done, low, whole=False)

        g.by_columns(g.cols, all_rows)

    return _intrinsic(channel_sums, body)
