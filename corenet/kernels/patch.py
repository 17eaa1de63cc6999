"""Transforms of square patches, 16 channels at a time: what Winograd's convolution does before and after its products.

    source: a grid of (size × size) channel vectors           target: a grid of (other × other) channel vectors
    ┌───┬───┬───┐                                              ┌───┬───┐
    │   │   │   │ ↓ line() on every column, then              │   │   │
    ├───┼───┼───┤ → on every row of what came out       ⇒     ├───┼───┤
    │   │   │   │                                              │   │   │
    └───┴───┴───┘                                              └───┴───┘

A `line` is a plain Python function that makes a list of values of another length by additions and products with
numbers; the same function works on NumPy arrays (the definitions), on slices (nests as plain Python) and on LLVM
vectors (below). Elements of the source outside of some bounds count as 0, and elements of the target outside of some
bounds are neither read nor written, so images need no border.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np

from .tile import LANES

Line = Callable[[list], list]


class Patch:
    """A transform of patches by `line`, from `size` values to `other`, to each of which it adds a bias, or what the
    target holds."""

    def __init__(self, line: Line, size: int, *, adds: Literal["bias", "target"] | None = None):
        self.line, self.size, self.adds = line, size, adds
        self.other = len(line([0.0] * size))

    def __call__(
        self, source, s0, s_row, s_col, top, bottom, left, right, target, t0, t_row, t_col, t_top, t_bottom, t_left,
        t_right, lanes, bias, b0,
    ):  # fmt: skip
        """On flat arrays: source patch at s0 with steps s_row and s_col, of which rows top … bottom and columns left …
        right are there (0 ≤ top ≤ bottom ≤ size, and so on); target patch at t0, of which rows t_top … t_bottom and
        columns t_left … t_right are wanted; bias[b0:] is added to each of its elements, if bias is not empty."""
        values = np.zeros((self.size, self.size, lanes), source.dtype)
        for i in range(top, bottom):
            for j in range(left, right):
                at = s0 + i * s_row + j * s_col
                values[i, j] = source[at : at + lanes]
        turned = transform(self.line, values)
        for i in range(t_top, t_bottom):
            for j in range(t_left, t_right):
                at = t0 + i * t_row + j * t_col
                there = target[at : at + lanes]
                there[:] = turned[i, j] + there if self.adds == "target" else turned[i, j]
                if self.adds == "bias" and bias.size:
                    there += bias[b0 : b0 + lanes]


def transform(line: Line, values: np.ndarray) -> np.ndarray:
    """line on the first axis, then on the second, of an array (size, size, …)."""
    once = np.stack(line(list(values)))
    return np.stack(line([once[:, j] for j in range(once.shape[1])]), axis=1)


class Vector:
    """An LLVM value with the arithmetic that lines use; a product that is added to something becomes one fused step."""

    def __init__(self, builder, value, factor: float | None = None):
        self.builder, self.value, self.factor = builder, value, factor

    def _splat(self, number: float):
        from llvmlite import ir

        return ir.Constant(self.value.type, [number] * LANES)

    def done(self):
        """The value itself."""
        return self.value if self.factor is None else self.builder.fmul(self.value, self._splat(self.factor))

    def __rmul__(self, factor: float) -> Vector:
        return Vector(self.builder, self.done(), factor)

    def __add__(self, other: Vector) -> Vector:
        if self.factor is None and other.factor is None:
            return Vector(self.builder, self.builder.fadd(self.value, other.value))
        product, rest = (self, other) if self.factor is not None else (other, self)
        assert product.factor is not None
        return Vector(self.builder, self._fma(product.value, product._splat(product.factor), rest.done()))

    def __neg__(self) -> Vector:
        return Vector(self.builder, self.value, -1.0 if self.factor is None else -self.factor)

    def __sub__(self, other: Vector) -> Vector:
        if self.factor is None and other.factor is None:
            return Vector(self.builder, self.builder.fsub(self.value, other.value))
        if other.factor is not None:
            return self + -other
        return Vector(self.builder, self.builder.fsub(self.done(), other.value))

    def _fma(self, a, b, c):
        from llvmlite import ir
        from numba.core import cgutils

        kind = ir.FunctionType(a.type, (a.type,) * 3)
        name = f"llvm.fmuladd.v{LANES}f32"
        return self.builder.call(cgutils.get_or_insert_function(self.builder.module, kind, name), [a, b, c])


def make_patch(patch: Patch):
    """The transform as LLVM code for Numba; float32 only."""
    from llvmlite import ir
    from numba import types
    from numba.core import cgutils
    from numba.extending import intrinsic

    i64, i32, f32 = ir.IntType(64), ir.IntType(32), ir.FloatType()
    vector = ir.VectorType(f32, LANES)
    zero = ir.Constant(vector, [0.0] * LANES)
    bits = ir.VectorType(ir.IntType(1), LANES)
    wide = ir.VectorType(i64, LANES)

    def generate(context, builder, signature, args):
        (
            source,
            s0,
            s_row,
            s_col,
            top,
            bottom,
            left,
            right,
            target,
            t0,
            t_row,
            t_col,
            t_top,
            t_bottom,
            t_left,
            t_right,
            lanes,
            bias,
            b0,
        ) = args

        def data(value, kind):
            return context.make_array(kind)(context, builder, value=value)

        source, target = data(source, signature.args[0]).data, data(target, signature.args[8]).data
        pointer = vector.as_pointer()

        def function(name, result, *parameters):
            return cgutils.get_or_insert_function(builder.module, ir.FunctionType(result, parameters), name)

        masked_load = function(f"llvm.masked.load.v{LANES}f32.p0", vector, pointer, i32, bits, vector)
        masked_store = function(f"llvm.masked.store.v{LANES}f32.p0", ir.VoidType(), vector, pointer, i32, bits)
        align = ir.Constant(i32, 4)

        def splat(value, kind):
            one = builder.insert_element(ir.Constant(kind, ir.Undefined), value, ir.Constant(i32, 0))
            return builder.shuffle_vector(
                one, ir.Constant(kind, ir.Undefined), ir.Constant(ir.VectorType(i32, LANES), [0] * LANES)
            )

        mask = builder.icmp_signed("<", ir.Constant(wide, list(range(LANES))), splat(lanes, wide))

        def at(base, start, row, i, column, j):
            offset = builder.add(start, builder.add(builder.mul(row, i), builder.mul(column, j)))
            return builder.bitcast(builder.gep(base, [offset]), pointer)

        def number(value):
            return ir.Constant(i64, value)

        def within(place, low, high):
            return builder.and_(builder.icmp_signed("<=", low, place), builder.icmp_signed("<", place, high))

        def equal(value, other):
            return builder.icmp_signed("==", value, number(other))

        nothing, size = number(0), number(patch.size)

        def bias_vector(whole):
            array = data(bias, signature.args[17])
            value = cgutils.alloca_once_value(builder, zero)
            with builder.if_then(builder.icmp_signed(">", builder.extract_value(array.shape, 0), nothing)):
                place = builder.bitcast(builder.gep(array.data, [b0]), pointer)
                there = builder.load(place, align=4) if whole else builder.call(masked_load, [place, align, mask, zero])
                builder.store(there, value)
            return Vector(builder, builder.load(value))

        # A patch is more than registers hold: what its columns give waits in an array that stays in the nearest cache.
        between = cgutils.alloca_once(builder, ir.ArrayType(vector, patch.size * patch.other))

        def waiting(i, j):
            return builder.gep(between, [nothing, builder.add(builder.mul(j, number(patch.other)), i)])

        def lanes_if(condition):
            return builder.and_(mask, splat(condition, bits))

        def body(whole: bool):
            if not whole:  # lanes of the rows that are there, and of the columns that are wanted
                row_mask = [lanes_if(within(number(i), top, bottom)) for i in range(patch.size)]
                column_mask = [lanes_if(within(number(j), t_left, t_right)) for j in range(patch.other)]

            def load(i, j):
                place = at(source, s0, s_row, number(i), s_col, j)
                if whole:
                    return builder.load(place, align=4)
                return builder.call(masked_load, [place, align, row_mask[i], zero])

            def store(value, i, j):
                place = at(target, t0, t_row, i, t_col, number(j))
                if patch.adds == "target":
                    if whole:
                        there = builder.load(place, align=4)
                    else:
                        there = builder.call(masked_load, [place, align, column_mask[j], zero])
                    value = builder.fadd(value, there)
                if whole:
                    builder.store(value, place, align=4)
                else:
                    builder.call(masked_store, [value, place, align, column_mask[j]])

            plus = bias_vector(whole) if patch.adds == "bias" else None
            if not whole:  # lines have no constant term: columns that are not there give zeros
                for begin, end in ((nothing, left), (right, size)):
                    with cgutils.for_range(builder, end, begin, intp=i64) as column:
                        for i in range(patch.other):
                            builder.store(zero, waiting(number(i), column.index))
            begin, end = (nothing, size) if whole else (left, right)
            with cgutils.for_range(builder, end, begin, intp=i64) as column:
                values = [Vector(builder, load(i, column.index)) for i in range(patch.size)]
                for i, value in enumerate(patch.line(values)):
                    builder.store(value.done(), waiting(number(i), column.index))
            begin, end = (nothing, number(patch.other)) if whole else (t_top, t_bottom)
            with cgutils.for_range(builder, end, begin, intp=i64) as row:
                line = [Vector(builder, builder.load(waiting(row.index, number(j)))) for j in range(patch.size)]
                for j, value in enumerate(patch.line(line)):
                    store((value if plus is None else value + plus).done(), row.index, j)

        conditions = [
            equal(top, 0), equal(bottom, patch.size), equal(left, 0), equal(right, patch.size),
            equal(t_top, 0), equal(t_bottom, patch.other), equal(t_left, 0), equal(t_right, patch.other),
            builder.icmp_signed(">=", lanes, ir.Constant(i64, LANES)),
        ]  # fmt: skip
        all_there = conditions[0]
        for condition in conditions[1:]:
            all_there = builder.and_(all_there, condition)
        with builder.if_else(all_there) as (then, otherwise):
            with then:
                body(True)
            with otherwise:
                body(False)
        return context.get_dummy_value()

    def typed(
        context, source, s0, s_row, s_col, top, bottom, left, right, target, t0, t_row, t_col, t_top, t_bottom, t_left,
        t_right, lanes, bias, b0,
    ):  # fmt: skip
        numbers = [types.int64]
        if not all(g.dtype == types.float32 for g in (source, target, bias)):
            return None
        return types.void(source, *numbers * 7, target, *numbers * 8, bias, *numbers), generate

    return intrinsic(typed)
