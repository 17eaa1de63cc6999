"""The register tile for bfloat16: operands in pairs, whose two products a single instruction adds to a sum.

    c[m][j] += Σ_tap Σ_l  a[m, tap, l] · b[tap, l][j]          m < ROWS rows, j < LANES columns

As in `tile.py`, but steps l go in pairs, two neighbours in `a` and in `b` alike:

    a, a row         a[0] a[1]  ·  a[2] a[3]  ·  …             a pair every a_step, at any even or odd place
    b, two rows      b[0][0] b[1][0]  b[0][1] b[1][1]  …       pairs of all columns; the next two rows b_step further

An odd last step is a pair whose second half is not read from `a` and has to be finite in `b`, such as 0.

The products of two bfloat16 are exact in float32 (8 + 8 bits of 24), so a sum differs from `tile`'s of the same numbers
by the rounding of its additions only, at most one for each product. Each element is one chain in the order (tap, l):
the same bits whoever computes it. CPUs may differ in how an instruction rounds its two additions.
"""

import inspect

from .bfloat16 import widened
from .tile import LANES
from .vectors import Vectors

HEIGHT = 8  # rows, as in tile.py for AVX-512


def bf16_tile(a, a0, a_row, m0, rows, a_tap, b_tap, length, a_step, b, b0, b_step, c, c0, c_row, cols, start, start0):
    """Sums over taps and steps for rows m0 … m0+rows (at most ROWS) and `cols` columns (at most LANES), into c.

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
    from numba import types
    from numba.core import cgutils
    from numba.extending import intrinsic

    i16, i32, i64 = ir.IntType(16), ir.IntType(32), ir.IntType(64)
    words = ir.VectorType(i32, LANES)
    names = list(inspect.signature(bf16_tile).parameters)

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
        pairs = builder.ashr(arg["length"], ir.Constant(i64, 1))
        odd = builder.trunc(arg["length"], ir.IntType(1))

        def at(pointer, index):
            return builder.gep(pointer, [index])

        def body(v, rows):
            """A tile of that many rows of vectors v."""
            multiply = v.function("llvm.x86.avx512bf16.dpbf16ps.512", v.kind, v.kind, words, words)
            row = [builder.add(arg["m0"], ir.Constant(i64, m)) for m in range(rows)]
            a_offset = [builder.load(at(arg["a_row"], m)) for m in row]
            c_place = [at(arg["c"], builder.add(arg["c0"], builder.load(at(arg["c_row"], m)))) for m in row]
            sums = [cgutils.alloca_once(builder, v.kind) for _ in range(rows)]
            with builder.if_else(given) as (new, old):
                with new:
                    first = v.load(at(arg["start"], arg["start0"]))
                    for m in range(rows):
                        builder.store(first, sums[m])
                with old:
                    for m in range(rows):
                        builder.store(v.load(c_place[m]), sums[m])

            def add(b_place, a_word):
                """Add a pair of products to each sum; a_word(m) is row m's pair."""
                b_row = v.load(builder.bitcast(b_place, i32.as_pointer()), align=2)
                for m in range(rows):
                    value = v.splat(a_word(m), words)
                    builder.store(builder.call(multiply, [builder.load(sums[m]), value, b_row]), sums[m])

            with cgutils.for_range(builder, tap_count, intp=i64) as tap:
                a_base = builder.add(arg["a0"], builder.load(at(arg["a_tap"], tap.index)))
                b_base = at(arg["b"], builder.add(arg["b0"], builder.load(at(arg["b_tap"], tap.index))))
                a_base_of = [at(arg["a"], builder.add(a_base, offset)) for offset in a_offset]

                def pair_of(m, a_at, a_base_of=a_base_of):
                    return builder.load(builder.bitcast(at(a_base_of[m], a_at), i32.as_pointer()), align=2)

                def single_of(m, a_at, a_base_of=a_base_of):
                    return builder.zext(builder.load(at(a_base_of[m], a_at)), i32)

                with cgutils.for_range(builder, pairs, intp=i64) as step:
                    a_at = builder.mul(step.index, arg["a_step"])
                    add(at(b_base, builder.mul(step.index, arg["b_step"])), lambda m, a_at=a_at: pair_of(m, a_at))
                with builder.if_then(odd):
                    a_at = builder.mul(pairs, arg["a_step"])
                    add(at(b_base, builder.mul(pairs, arg["b_step"])), lambda m, a_at=a_at: single_of(m, a_at))
            for m in range(rows):
                with builder.if_then(builder.icmp_signed("<", ir.Constant(i64, m), arg["rows"])):
                    v.store(builder.load(sums[m]), c_place[m])

        with builder.if_else(builder.icmp_signed("<", arg["cols"], ir.Constant(i64, LANES))) as (edge, whole):
            with whole:
                few = builder.icmp_signed("<=", arg["rows"], ir.Constant(i64, HEIGHT // 2))
                with builder.if_else(few) as (half, most):
                    with half:
                        body(Vectors(builder, LANES), HEIGHT // 2)
                    with most:
                        body(Vectors(builder, LANES), HEIGHT)
            with edge:
                body(Vectors(builder, LANES, arg["cols"]), HEIGHT)
        return context.get_dummy_value()

    def typed(
        context, a, a0, a_row, m0, rows, a_tap, b_tap, length, a_step, b, b0, b_step, c, c0, c_row, cols, start, start0
    ):
        given = (a, a0, a_row, m0, rows, a_tap, b_tap, length, a_step, b, b0, b_step, c, c0, c_row, cols, start, start0)
        wanted = [g if isinstance(g, types.Array) else types.int64 for g in given]
        if not all(g.dtype == types.uint16 for g in (a, b)) or not all(g.dtype == types.float32 for g in (c, start)):
            return None
        return types.void(*wanted), generate

    return intrinsic(typed)
