"""bfloat16: what precision="bf16" means, and float32 made into operands of the bf16 tile.

A bfloat16 is the upper half of a float32: its range, with 8 bits instead of 24. The operands of a product are rounded
to it, to the nearest and of two equally near ones to the even; their products, exact in float32, are summed in float32.
Everything else stays float32: parameters, activations in memory, normalisation, losses, the optimizer.

Denormals become 0, as the CPU's instructions have it. Bits of bfloat16 are kept in uint16.

`round_row` and `pair_rows` are definitions; compiled, LLVM code takes their place that uses AVX512-BF16.
"""

import numpy as np

from .tile import LANES
from .vectors import Vectors

FEATURE = "avx512bf16"  # LLVM's name for the instructions that the compiled code uses


def bits(x):
    """The bfloat16 nearest to float32 values, as uint16: ties to even, denormals to 0, a NaN stays one."""
    word = np.asarray(x, np.float32).view(np.uint32)
    magnitude = word & np.uint32(0x7FFFFFFF)
    half = (word + np.uint32(0x7FFF) + (word >> np.uint32(16) & np.uint32(1))) >> np.uint32(16)
    half = np.where(magnitude < 0x00800000, word >> 16 & 0x8000, half)
    return np.where(magnitude > 0x7F800000, word >> 16 | 0x40, half).astype(np.uint16)


def widened(half):
    """The float32 values of bits of bfloat16: exact."""
    return (np.asarray(half).astype(np.uint32) << np.uint32(16)).view(np.float32)


def rounded(x):
    """Values rounded to bfloat16, in an array of x's own type and shape."""
    return widened(bits(x)).astype(x.dtype)


def round_row(source, s0, target, t0, count):
    """Round `count` floats from s0 on into the bits at t0. Arrays are flat."""
    target[t0 : t0 + count] = bits(source[s0 : s0 + count])


def pair_rows(source, even, odd, target, t0, count):
    """Round two rows of `count` floats, at `even` and `odd` (−1: zeros), into the bits at t0, in turns."""
    target[t0 : t0 + 2 * count : 2] = bits(source[even : even + count])
    target[t0 + 1 : t0 + 2 * count : 2] = bits(source[odd : odd + count]) if odd >= 0 else 0


def make_round_row():
    """`round_row` as LLVM code for Numba."""
    from llvmlite import ir
    from numba.extending import intrinsic

    def vector(builder, v, done, source, s0, target, t0):
        halves = ir.VectorType(ir.IntType(16), LANES)
        convert = v.function("llvm.x86.avx512bf16.cvtneps2bf16.512", halves, v.kind)
        floats = v.load(builder.gep(source, [builder.add(s0, done)]))
        v.store(builder.call(convert, [floats]), builder.gep(target, [builder.add(t0, done)]))

    def typed(context, source, s0, target, t0, count):
        return _vector_by_vector(vector, source, s0, target, t0, count)

    return intrinsic(typed)


def make_pair_rows():
    """`pair_rows` as LLVM code for Numba."""
    from llvmlite import ir
    from numba.extending import intrinsic

    i32, i64 = ir.IntType(32), ir.IntType(64)

    def vector(builder, v, done, source, even, odd, target, t0):
        halves, words = ir.VectorType(ir.IntType(16), 2 * LANES), ir.VectorType(i32, LANES)
        convert = v.function("llvm.x86.avx512bf16.cvtne2ps2bf16.512", halves, v.kind, v.kind)
        there = builder.icmp_signed(">=", odd, ir.Constant(i64, 0))
        low = v.load(builder.gep(source, [builder.add(even, done)]))
        high = v.load(builder.gep(source, [builder.add(builder.select(there, odd, even), done)]))
        high = builder.select(there, high, ir.Constant(v.kind, None))
        both = builder.call(convert, [high, low])  # those of the second argument come first
        turns = ir.Constant(ir.VectorType(i32, 2 * LANES), [j // 2 + j % 2 * LANES for j in range(2 * LANES)])
        pairs = builder.bitcast(builder.shuffle_vector(both, both, turns), words)
        place = builder.gep(target, [builder.add(t0, builder.add(done, done))])
        v.store(pairs, builder.bitcast(place, i32.as_pointer()), align=2)

    def typed(context, source, even, odd, target, t0, count):
        return _vector_by_vector(vector, source, even, odd, target, t0, count)

    return intrinsic(typed)


def _vector_by_vector(vector, *given):
    """Signature and code of an intrinsic (source, …, target, t0, count) that makes one vector after the other, the last
    one with a mask; None if its arrays are not float32 and uint16."""
    from llvmlite import ir
    from numba import types
    from numba.core import cgutils

    i64 = ir.IntType(64)

    def generate(context, builder, signature, args):
        *arguments, count = [
            context.make_array(kind)(context, builder, value=arg).data if isinstance(kind, types.Array) else arg
            for kind, arg in zip(signature.args, args, strict=True)
        ]
        lanes = ir.Constant(i64, LANES)
        whole = builder.sdiv(count, lanes)
        with cgutils.for_range(builder, whole, intp=i64) as number:
            vector(builder, Vectors(builder, LANES), builder.mul(number.index, lanes), *arguments)
        done = builder.mul(whole, lanes)
        left = builder.sub(count, done)
        with builder.if_then(builder.icmp_signed(">", left, ir.Constant(i64, 0))):
            vector(builder, Vectors(builder, LANES, left), done, *arguments)
        return context.get_dummy_value()

    if [kind.dtype for kind in given if isinstance(kind, types.Array)] != [types.float32, types.uint16]:
        return None
    return types.void(*(kind if isinstance(kind, types.Array) else types.int64 for kind in given)), generate
