"""The register tile: the one inner loop under convolution, its two gradients and matrix products (BLIS's micro-kernel).

    c[m][j] += Σ_tap Σ_l  a[m, tap, l] · b[tap, l][j]          m < ROWS rows, j < LANES columns

                       l →                              j →  LANES
              ┌──────────────────┐               ┌────────────────┐
    ROWS   m  │ a: any offsets   │    ×       l  │ b: contiguous  │     =  ROWS accumulators of LANES floats that stay
           ↓  └──────────────────┘            ↓  └────────────────┘        in vector registers until the sum is done

Row m of `a` starts at a0 + a_row[m]; tap t adds a_tap[t] to it and b_tap[t] to `b`; step l adds l·a_step and l·b_step.
With those few numbers the same tile walks over an image (rows = pixels, taps = filter rows), over a filter (rows =
filter elements, taps = image rows) or over a matrix (one tap). Each element is one chain of fused multiply-adds in the
order (tap, l), whoever computes it and wherever the tile's borders lie: this is what keeps the bits the same.

`tile` below is the definition. Compiled, it is replaced by `make_tile`'s LLVM code, explicit vectors and no intrinsics
of any one machine: LLVM splits <16 x float> into what the CPU has (one register with AVX-512, two with AVX2, four with
NEON or SSE). How many rows fit then is the only thing that differs by machine.
"""

from .intrinsic import make_intrinsic
from .operation import device
from .vectors import LANES, NARROW, Vectors

ROWS = 8  # rows: accumulators in flight; `rows_for` gives the number that fits this CPU when compiling


@device
def near_height(cols):
    """Rows of a near tile with so many columns: where half a vector holds them, twice as many rows fit."""
    return ROWS if cols > NARROW else 2 * ROWS


@device
def padded(count, multiple):
    """`count` rounded up to a multiple; tables of rows are this long, since a tile reads ROWS entries at a time."""
    return (count + multiple - 1) // multiple * multiple


@device
def evenly(rows, high):
    """Rows of each tile where they are shared evenly among as few tiles of at most that many as it takes."""
    tiles = (rows + high - 1) // high
    return (rows + tiles - 1) // max(1, tiles)


def tile(a, a0, a_row, m0, rows, a_tap, b_tap, length, a_step, b, b0, b_step, c, c0, c_row, cols, start, start0):
    """Sums over taps and steps for rows m0 … m0+rows (at most ROWS) and `cols` columns (at most LANES), into c.

    Each begins with start[start0 + j], such as a bias or 0, or if `start` is empty with what is in c: then it is added
    to. All arrays are flat.
    """
    for m in range(m0, m0 + rows):
        for j in range(cols):
            total = start[start0 + j] if start.shape[0] > 0 else c[c0 + c_row[m] + j]
            for t in range(a_tap.shape[0]):
                for step in range(length):
                    total += (
                        a[a0 + a_row[m] + a_tap[t] + step * a_step] * b[b0 + b_tap[t] + step * b_step + j]
                    )  # fmt: skip
            c[c0 + c_row[m] + j] = total


def rows_for(features: str, arch: str) -> int:
    """Rows of the tile for a CPU, by its vector registers: 32×512 bits, 16×256, 32×128 (Arm), else 16×128."""
    if "+avx512f" in features:
        return 8
    if "+avx2" in features and "+fma" in features:
        return 5
    return 6 if arch in ("aarch64", "arm64") else 2


def near_tile(a, a0, a_row, m0, rows, a_tap, b_tap, length, a_step, b, b0, b_step, c, c0, c_row, cols, start, start0):
    """The tile where rows of a are neighbours, a_row[m + 1] = a_row[m] + 1: one address serves all of them.

    It has up to near_height(cols) rows.
    """
    tile(a, a0, a_row, m0, rows, a_tap, b_tap, length, a_step, b, b0, b_step, c, c0, c_row, cols, start, start0)


def make_tile(rows: int, near: bool):
    """The tile as LLVM code for Numba, `rows` rows high; float32 only."""
    from numba.core import cgutils

    def body(code, given):
        builder, number = code.builder, code.number
        begins = code.less(number(0), code.lengths["start"])

        def sums(v, rows, neighbours=False):
            """A tile of that many rows of vectors v; neighbours: one address serves all rows of a."""
            row = [builder.add(given.m0, number(m)) for m in range(rows)]
            a_row = [code.load(given.a_row, m) for m in row[: 1 if neighbours else rows]]
            if neighbours:
                a_row = [builder.add(a_row[0], number(m)) for m in range(rows)]
            c_place = [code.at(given.c, given.c0, code.load(given.c_row, m)) for m in row]
            # Allocas of whole vectors: LLVM's mem2reg turns them into the register accumulators.
            totals = [cgutils.alloca_once(builder, v.kind) for _ in range(rows)]
            with builder.if_else(begins) as (new, old):
                with new:
                    first = v.load(code.at(given.start, given.start0))
                    for total in totals:
                        builder.store(first, total)
                with old:
                    for total, place in zip(totals, c_place, strict=True):
                        builder.store(v.load(place), total)
            add_products(code, given, v, a_row, totals)
            for m in range(rows):
                with builder.if_then(code.less(number(m), given.rows)):
                    v.store(builder.load(totals[m]), c_place[m])

        def by_rows(v, rows):
            if not near:
                sums(v, rows)
                return
            with builder.if_else(code.less(given.rows, number(rows))) as (low, high):
                with low:
                    sums(v, rows)
                with high:
                    sums(v, rows, neighbours=True)

        with builder.if_else(code.less(given.cols, number(LANES))) as (edge, whole):
            with whole:
                v, few = Vectors(builder, LANES), rows * 5 // 8
                with builder.if_else(code.less(number(few), given.rows)) as (most, half):
                    with most:
                        by_rows(v, rows)
                    with half:
                        sums(v, few)
            with edge, builder.if_else(code.less(number(NARROW), given.cols)) as (wide, narrow):
                with wide:
                    sums(Vectors(builder, LANES, given.cols), rows)
                with narrow:
                    by_rows(Vectors(builder, NARROW, given.cols), 2 * rows if near else rows)

    return make_intrinsic(tile, body, float32=("a", "b", "c", "start"))


def add_products(code, given, v, a_row, totals):
    """The code that adds a[m, tap, l] · b[tap, l] of all taps and steps to totals[m], for rows of a that begin at
    a_row[m] from a0 on, with b's columns in vectors v."""
    from numba.core import cgutils

    builder = code.builder
    with cgutils.for_range(builder, code.lengths["a_tap"], intp=code.i64) as tap:
        a_base = builder.add(given.a0, code.load(given.a_tap, tap.index))
        b_base = code.at(given.b, builder.add(given.b0, code.load(given.b_tap, tap.index)))
        places = [code.at(given.a, builder.add(a_base, offset)) for offset in a_row]
        with cgutils.for_range(builder, given.length, intp=code.i64) as step:
            b_row = v.load(code.at(b_base, builder.mul(step.index, given.b_step)))
            a_at = builder.mul(step.index, given.a_step)
            for place, total in zip(places, totals, strict=True):
                builder.store(v.fma(v.splat(code.load(place, a_at)), b_row, builder.load(total)), total)
