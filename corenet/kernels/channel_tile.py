"""Tiles of pixels × channels, where every channel has numbers of its own: the inner loops of depthwise convolution.

    channel_tile    y[p][j]  = start[j] + Σ_line Σ_tap  x[p, line, tap][j] · w[line, tap][j]      one line of pixels p
    channel_sums    c[m][j] += Σ_line Σ_p               x[line, p, tap m][j] · y[line, p][j]      all taps m

Nothing is summed over channels, so they are the vector (j), and the sums that stay in registers are those of a few
neighbouring pixels, or of a filter's taps: numbers of w serve all of these pixels, numbers of y all of these taps. Each
element is one chain of fused multiply-adds in the order (line, tap) or (line, p), wherever a tile's borders lie.
"""

from .intrinsic import make_intrinsic


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


def make_channel_tile(rows: int):
    """`channel_tile` as LLVM code for Numba, on a CPU that holds so many rows of LANES floats in registers."""
    from numba.core import cgutils

    half = max(1, rows // 2)

    def body(code, given):
        builder, number = code.builder, code.number

        def some(v, p0, height):
            """Pixels p0 … p0 + height."""
            pixel = [builder.add(p0, number(m)) for m in range(height)]
            x_place = code.at(given.x, given.x0, builder.mul(p0, given.x_step))
            in_four, four = (
                [builder.mul(number(m), given.x_step) for m in range(4)],
                builder.mul(number(4), given.x_step),
            )
            begin = v.load(code.at(given.start, given.start0))
            sums = [cgutils.alloca_once_value(builder, begin) for _ in pixel]
            with cgutils.for_range(builder, given.lines, intp=code.i64) as line:
                entry = builder.add(given.first, line.index)
                x_line, w_line = (builder.load(code.at(table, entry)) for table in (given.x_line, given.w_line))
                with cgutils.for_range(builder, given.taps, intp=code.i64) as tap:
                    factor = v.load(code.at(given.w, given.w0, w_line, builder.mul(tap.index, given.w_tap)))
                    place = code.at(x_place, code.opaque(builder.add(x_line, builder.mul(tap.index, given.x_tap))))
                    for m in range(height):
                        if m and m % 4 == 0:
                            place = code.at(place, four)
                        value = v.load(code.at(place, in_four[m % 4]))
                        builder.store(v.fma(value, factor, builder.load(sums[m])), sums[m])
            for m, p in enumerate(pixel):
                v.store(builder.load(sums[m]), code.at(given.y, given.y0, builder.mul(p, given.y_step)))

        def all_pixels(v):
            whole = builder.sdiv(given.pixels, number(rows))
            with cgutils.for_range(builder, whole, intp=code.i64) as part:
                some(v, builder.mul(part.index, number(rows)), rows)
            done = builder.mul(whole, number(rows))
            left = builder.sub(given.pixels, done)
            with builder.if_else(code.less(given.pixels, number(half))) as (few, many):
                with few, cgutils.for_range(builder, left, intp=code.i64) as part:
                    some(v, part.index, 1)
                with many:
                    # The last ones overlap those before, and are written twice: the same numbers.
                    halves = builder.sdiv(builder.add(left, number(half - 1)), number(half))
                    with cgutils.for_range(builder, halves, intp=code.i64) as part:
                        p0 = builder.add(done, builder.mul(part.index, number(half)))
                        some(v, code.smaller(p0, builder.sub(given.pixels, number(half))), half)

        code.by_columns(given.cols, all_pixels)

    return make_intrinsic(channel_tile, body, float32=("x", "w", "y", "start"))


def make_channel_sums(rows: int):
    """`channel_sums` as LLVM code for Numba, on a CPU that holds so many rows of LANES floats in registers."""
    from numba.core import cgutils

    high = 9 if rows > 7 else rows  # a 3×3 filter at once, where that fits
    low = (high + 1) // 2

    def body(code, given):
        builder, number = code.builder, code.number

        def some(v, first, height, whole):
            """Rows from the first on; unless they are `whole`, those that are not there repeat the last one, and are
            not stored."""
            row = [builder.add(first, number(m)) for m in range(height)]
            if not whole:
                row = [code.smaller(m, builder.sub(given.rows, number(1))) for m in row]
            c_place = [code.at(given.c, given.c0, builder.mul(m, given.c_row)) for m in row]
            x_place = [code.at(given.x, given.x0, builder.load(code.at(given.x_tap, given.m0, m))) for m in row]
            sums = [cgutils.alloca_once_value(builder, v.load(place)) for place in c_place]
            with cgutils.for_range(builder, given.lines, intp=code.i64) as line:
                x_line, y_line = builder.mul(line.index, given.x_line), builder.mul(line.index, given.y_line)
                with cgutils.for_range(builder, given.pixels, intp=code.i64) as pixel:
                    factor = v.load(code.at(given.y, given.y0, y_line, builder.mul(pixel.index, given.y_step)))
                    offset = code.opaque(builder.add(x_line, builder.mul(pixel.index, given.x_step)))
                    for m in range(height):
                        builder.store(
                            v.fma(v.load(code.at(x_place[m], offset)), factor, builder.load(sums[m])), sums[m]
                        )
            for m in range(height):
                if whole:
                    v.store(builder.load(sums[m]), c_place[m])
                    continue
                with builder.if_then(code.less(builder.add(first, number(m)), given.rows)):
                    v.store(builder.load(sums[m]), c_place[m])

        def all_rows(v):
            parts = builder.sdiv(given.rows, number(high))
            with cgutils.for_range(builder, parts, intp=code.i64) as part:
                some(v, builder.mul(part.index, number(high)), high, whole=True)
            done = builder.mul(parts, number(high))
            left = builder.sub(given.rows, done)
            with builder.if_else(code.less(number(low), left)) as (most, few):
                with most:
                    some(v, done, high, whole=False)
                with few, builder.if_then(code.less(number(0), left)):
                    some(v, done, low, whole=False)

        code.by_columns(given.cols, all_rows)

    return make_intrinsic(channel_sums, body, float32=("x", "y", "c"))
