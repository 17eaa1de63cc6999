"""The register tile for bfloat16: operands in pairs, whose two products a single instruction adds to a sum.

    c[m][j] += Σ_tap Σ_l  a[m, tap, l] · b[tap, l][j]          m < HEIGHT rows, j < WIDE columns

As in `tile.py`, but steps l go in pairs, two neighbours in `a` and in `b` alike:

    a, a row         a[0] a[1]  ·  a[2] a[3]  ·  …             a pair every a_step, at any even or odd place
    b, two rows      b[0][0] b[1][0]  b[0][1] b[1][1]  …       pairs of all columns; the next two rows b_step further

An odd last step is a pair whose second half is not read from `a` and has to be finite in `b`, such as 0.

The products of two bfloat16 are exact in float32 (8 + 8 bits of 24), so a sum differs from `tile`'s of the same numbers
by the rounding of its additions only, at most one for each product. Each element is one chain in the order (tap, l):
the same bits whoever computes it. CPUs may differ in how an instruction rounds its two additions.
"""

from functools import partial

from .bfloat16 import widened
from .intrinsic import make_intrinsic
from .vectors import LANES, NARROW, Vectors

HEIGHT = 8  # rows: accumulators in flight, for each of the two vectors
WIDE = 2 * LANES  # columns: a word of `a` is loaded for two vectors, for loads would be what takes the time


def bf16_tile(a, a0, a_row, m0, rows, a_tap, b_tap, length, a_step, b, b0, b_step, c, c0, c_row, cols, start, start0):
    """Sums over taps and steps for rows m0 … m0+rows (at most HEIGHT) and `cols` columns (at most WIDE), into c.

    a and b are bits of bfloat16 (`bfloat16.py`), c and start float32; begin and end of the sums are as in `tile`.
    """
    for m in range(m0, m0 + rows):
        for j in range(cols):
            total = start[start0 + j] if start.shape[0] > 0 else c[c0 + c_row[m] + j]
            for t in range(a_tap.shape[0]):
                for step in range(length):
                    left = a[a0 + a_row[m] + a_tap[t] + step // 2 * a_step + step % 2]
                    right = b[b0 + b_tap[t] + step // 2 * b_step + 2 * j + step % 2]
                    total += widened(left) * widened(right)
            c[c0 + c_row[m] + j] = total


def make_bf16_tile():
    """The tile as LLVM code for Numba, on AVX512-BF16."""
    from llvmlite import ir
    from numba.core import cgutils

    i32, i64 = ir.IntType(32), ir.IntType(64)

    def body(code, given):
        builder, at, number = code.builder, code.at, code.number
        begins = code.less(number(0), code.lengths["start"])
        pairs = builder.ashr(given.length, number(1))
        odd = builder.trunc(given.length, ir.IntType(1))

        def sums_of(vectors):
            """A tile whose rows are these vectors."""
            kind, words = vectors[0].kind, ir.VectorType(i32, vectors[0].lanes)
            name = f"llvm.x86.avx512bf16.dpbf16ps.{32 * vectors[0].lanes}"
            multiply = vectors[0].function(name, kind, kind, words, words)
            row = [builder.add(given.m0, number(m)) for m in range(HEIGHT)]
            a_offset = [builder.load(at(given.a_row, m)) for m in row]
            c_place = [at(given.c, builder.add(given.c0, builder.load(at(given.c_row, m)))) for m in row]
            parts = [(m, v, part) for m in range(HEIGHT) for part, v in enumerate(vectors)]
            sums = {(m, part): cgutils.alloca_once(builder, v.kind) for m, v, part in parts}

            def place(pointer, part, size=1):
                return at(pointer, number(part * size * LANES)) if part else pointer

            with builder.if_else(begins) as (new, old):
                with new:
                    start = at(given.start, given.start0)
                    first = [v.load(place(start, part)) for part, v in enumerate(vectors)]
                    for m, _, part in parts:
                        builder.store(first[part], sums[m, part])
                with old:
                    for m, v, part in parts:
                        builder.store(v.load(place(c_place[m], part)), sums[m, part])

            def add(b_place, a_word):
                """Add a pair of products to each sum; a_word(m) is row m's pair."""
                b_row = [
                    v.load(builder.bitcast(place(b_place, part, 2), i32.as_pointer()), align=2)
                    for part, v in enumerate(vectors)
                ]
                for m in range(HEIGHT):
                    value = vectors[0].splat(a_word(m), words)
                    for part, b_part in enumerate(b_row):
                        total = builder.load(sums[m, part])
                        builder.store(builder.call(multiply, [total, value, b_part]), sums[m, part])

            with cgutils.for_range(builder, code.lengths["a_tap"], intp=i64) as tap:
                a_base = builder.add(given.a0, builder.load(at(given.a_tap, tap.index)))
                b_base = at(given.b, builder.add(given.b0, builder.load(at(given.b_tap, tap.index))))
                a_base_of = [at(given.a, builder.add(a_base, offset)) for offset in a_offset]

                def pair_of(m, a_at):
                    return builder.load(builder.bitcast(at(a_base_of[m], a_at), i32.as_pointer()), align=2)

                def single_of(m, a_at):
                    return builder.zext(builder.load(at(a_base_of[m], a_at)), i32)

                with cgutils.for_range(builder, pairs, intp=i64) as step:
                    a_at = builder.mul(step.index, given.a_step)
                    add(at(b_base, builder.mul(step.index, given.b_step)), partial(pair_of, a_at=a_at))
                with builder.if_then(odd):
                    a_at = builder.mul(pairs, given.a_step)
                    add(at(b_base, builder.mul(pairs, given.b_step)), partial(single_of, a_at=a_at))
            for m in range(HEIGHT):
                with builder.if_then(builder.icmp_signed("<", number(m), given.rows)):
                    for part, v in enumerate(vectors):
                        v.store(builder.load(sums[m, part]), place(c_place[m], part))

        def across(count, lanes):
            """A tile of that many vectors, of which the last has a mask unless all columns are there."""
            whole = [Vectors(builder, lanes) for _ in range(count)]
            with builder.if_else(builder.icmp_signed("==", given.cols, number(count * lanes))) as (
                full,
                edge,
            ):
                with full:
                    sums_of(whole)
                with edge:
                    left = builder.sub(given.cols, number((count - 1) * lanes))
                    sums_of([*whole[1:], Vectors(builder, lanes, left)])

        def more_than(columns):
            return builder.icmp_signed("<", number(columns), given.cols)

        with builder.if_else(more_than(LANES)) as (wide, others):
            with wide:
                across(WIDE // LANES, LANES)
            with others, builder.if_else(more_than(NARROW)) as (one, half):
                with one:
                    across(1, LANES)
                with half:
                    across(1, NARROW)

    return make_intrinsic(bf16_tile, body, uint16=("a", "b"), float32=("c", "start"))
