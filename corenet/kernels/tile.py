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

import inspect

from .operation import device
from .vectors import Vectors

LANES = 16  # columns: floats in one vector
NARROW = 8  # columns: floats in the vectors of a tile that has few
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
    from llvmlite import ir
    from numba import types
    from numba.core import cgutils
    from numba.extending import intrinsic

    i64 = ir.IntType(64)
    names = list(inspect.signature(tile).parameters)

    def generate(context, builder, signature, args):
        arg = dict(zip(names, args, strict=True))
        arrays = {
            name: context.make_array(kind)(context, builder, value=arg[name])
            for name, kind in zip(names, signature.args, strict=True)
            if isinstance(kind, types.Array)
        }
        arg |= {name: array.data for name, array in arrays.items()}
        tap_count = builder.extract_value(arrays["a_tap"].shape, 0)
        given = builder.icmp_signed(">", builder.extract_value(arrays["start"].shape, 0), ir.Constant(i64, 0))

        def at(pointer, index):
            return builder.gep(pointer, [index])

        def less(a, b):
            return builder.icmp_signed("<", a, b)

        def body(v, rows, neighbours=False):
            """A tile of that many rows of vectors v; neighbours: one address serves all rows of a."""
            row = [builder.add(arg["m0"], ir.Constant(i64, m)) for m in range(rows)]
            a_offset = [builder.load(at(arg["a_row"], m)) for m in row[: 1 if neighbours else rows]]
            if neighbours:
                a_offset = [builder.add(a_offset[0], ir.Constant(i64, m)) for m in range(rows)]
            c_place = [at(arg["c"], builder.add(arg["c0"], builder.load(at(arg["c_row"], m)))) for m in row]
            # Allocas of whole vectors: LLVM's mem2reg turns them into the register accumulators.
            sums = [cgutils.alloca_once(builder, v.kind) for _ in range(rows)]
            with builder.if_else(given) as (new, old):
                with new:
                    first = v.load(at(arg["start"], arg["start0"]))
                    for m in range(rows):
                        builder.store(first, sums[m])
                with old:
                    for m in range(rows):
                        builder.store(v.load(c_place[m]), sums[m])
            with cgutils.for_range(builder, tap_count, intp=i64) as tap:
                a_base = builder.add(arg["a0"], builder.load(at(arg["a_tap"], tap.index)))
                b_base = at(arg["b"], builder.add(arg["b0"], builder.load(at(arg["b_tap"], tap.index))))
                a_base_of = [at(arg["a"], builder.add(a_base, offset)) for offset in a_offset]
                with cgutils.for_range(builder, arg["length"], intp=i64) as step:
                    b_row = v.load(at(b_base, builder.mul(step.index, arg["b_step"])))
                    a_at = builder.mul(step.index, arg["a_step"])
                    for m in range(rows):
                        value = v.splat(builder.load(at(a_base_of[m], a_at)))
                        builder.store(v.fma(value, b_row, builder.load(sums[m])), sums[m])
            for m in range(rows):
                with builder.if_then(less(ir.Constant(i64, m), arg["rows"])):
                    v.store(builder.load(sums[m]), c_place[m])

        def by_rows(v, rows):
            if not near:
                body(v, rows)
                return
            with builder.if_else(less(arg["rows"], ir.Constant(i64, rows))) as (low, high):
                with low:
                    body(v, rows)
                with high:
                    body(v, rows, neighbours=True)

        with builder.if_else(less(arg["cols"], ir.Constant(i64, LANES))) as (edge, whole):
            with whole:
                v, few = Vectors(builder, LANES), rows * 5 // 8
                with builder.if_else(less(ir.Constant(i64, few), arg["rows"])) as (most, half):
                    with most:
                        by_rows(v, rows)
                    with half:
                        body(v, few)
            with edge, builder.if_else(less(ir.Constant(i64, NARROW), arg["cols"])) as (wide, narrow):
                with wide:
                    body(Vectors(builder, LANES, arg["cols"]), rows)
                with narrow:
                    by_rows(Vectors(builder, NARROW, arg["cols"]), 2 * rows if near else rows)
        return context.get_dummy_value()

    def typed(
        context, a, a0, a_row, m0, rows, a_tap, b_tap, length, a_step, b, b0, b_step, c, c0, c_row, cols, start, start0
    ):
        given = (a, a0, a_row, m0, rows, a_tap, b_tap, length, a_step, b, b0, b_step, c, c0, c_row, cols, start, start0)
        wanted = [g if isinstance(g, types.Array) else types.int64 for g in given]
        if not all(g.dtype == types.float32 for g in (a, b, c, start)):
            return None
        return types.void(*wanted), generate

    return intrinsic(typed)
