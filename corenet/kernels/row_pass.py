"""One pass over the rows of an image, in registers: what is done in one place is a plain function of its values.

    kept[0][r, j], …, v, … = terms(arrays[0][r, j], …, numbers[0][j], …)       sums[0][j] += v, …       j < width

A row of `width` floats is one position or several (`rows.py`); the last one may be shorter. `terms` is made of +, −, ·
and the functions below, and works on slices (nests as plain Python) and on LLVM vectors alike. Each product and each
sum is rounded, in the order of rows, so both give the same bits. Loops over sums that lie in memory take twice as long.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .tile import LANES
from .vectors import Vectors

BLOCKS = 4, 1  # vectors that go together: enough sums at a time that none waits for itself


class RowPass:
    """A pass that keeps and sums what `terms`, a function of the values in one place, returns as a tuple."""

    def __init__(self, terms: Callable[..., tuple]):
        self.terms = terms

    def __call__(self, arrays, start, size, numbers, kept, sums):
        """Go over the elements start … start + size of flat arrays, in rows as long as numbers and sums are.

        All but start and size are tuples of arrays; of the results, the first are written into `kept`, the others added
        to `sums`.
        """
        width = len((*numbers, *sums)[0])
        for first in range(start, start + size, width):
            place = slice(first, min(first + width, start + size))
            cols = place.stop - first
            values = self.terms(*(a[place] for a in arrays), *(a[:cols] for a in numbers))
            for array, value in zip(kept, values, strict=False):
                array[place] = value
            for array, value in zip(sums, values[len(kept) :], strict=True):
                array[:cols] += value


def positive_part(value: Any) -> Any:
    """The larger of value and 0; NaN passes through."""
    if isinstance(value, Vector):
        return value.unless("<", value)
    return np.where(value < 0, value.dtype.type(0), value)


def where_positive(test: Any, value: Any) -> Any:
    """value where test > 0, else 0."""
    if isinstance(value, Vector):
        return value.unless("not >", test)
    return np.where(test > 0, value, value.dtype.type(0))


class Vector:
    """An LLVM vector with the arithmetic that terms use."""

    def __init__(self, builder: Any, value: Any):
        self.builder, self.value = builder, value

    def __add__(self, other: Vector) -> Vector:
        return Vector(self.builder, self.builder.fadd(self.value, other.value))

    def __sub__(self, other: Vector) -> Vector:
        return Vector(self.builder, self.builder.fsub(self.value, other.value))

    def __mul__(self, other: Vector) -> Vector:
        return Vector(self.builder, self.builder.fmul(self.value, other.value))

    def unless(self, relation: str, test: Vector) -> Vector:
        """0 where the test is "<" or "not >" 0, else this."""
        from llvmlite import ir

        zero = ir.Constant(self.value.type, None)
        compare = self.builder.fcmp_ordered if relation == "<" else self.builder.fcmp_unordered
        chosen = compare("<" if relation == "<" else "<=", test.value, zero)
        return Vector(self.builder, self.builder.select(chosen, zero, self.value))


def make_row_pass(row_pass: RowPass):
    """The pass as LLVM code for Numba; float32 only."""
    from llvmlite import ir
    from numba import types
    from numba.core import cgutils
    from numba.extending import intrinsic

    i64 = ir.IntType(64)

    def constant(value):
        return ir.Constant(i64, value)

    def generate(context, builder, signature, args):
        def made(number):
            kinds = signature.args[number]
            values = [builder.extract_value(args[number], e) for e in range(len(kinds))]
            return [context.make_array(k)(context, builder, value=v) for k, v in zip(kinds, values, strict=True)]

        widths = [*made(3), *made(5)]
        width = builder.extract_value(widths[0].shape, 0)
        arrays, numbers, kept, sums = ([array.data for array in made(number)] for number in (0, 3, 4, 5))
        start, size = args[1], args[2]

        def at(pointer, index):
            return builder.gep(pointer, [index])

        def columns(v, blocks, begin, rows, j0):
            """`blocks` vectors from column j0 on, of all rows."""
            places = [builder.add(j0, constant(LANES * block)) for block in range(blocks)]
            fixed = [[Vector(builder, v.load(at(array, place))) for array in numbers] for place in places]
            totals = [[cgutils.alloca_once_value(builder, v.load(at(a, place))) for a in sums] for place in places]
            with cgutils.for_range(builder, rows, intp=i64) as row:
                first = builder.add(begin, builder.mul(row.index, width))
                for block, place in enumerate(places):
                    here = builder.add(first, place)
                    values = [Vector(builder, v.load(at(array, here))) for array in arrays]
                    results = row_pass.terms(*values, *fixed[block])
                    for array, result in zip(kept, results, strict=False):
                        v.store(result.value, at(array, here))
                    for total, result in zip(totals[block], results[len(kept) :], strict=True):
                        builder.store(builder.fadd(builder.load(total), result.value), total)
            for block, place in enumerate(places):
                for array, total in zip(sums, totals[block], strict=True):
                    v.store(builder.load(total), at(array, place))

        rows = builder.sdiv(size, width)
        whole = builder.mul(rows, width)
        done = cgutils.alloca_once(builder, i64)
        with cgutils.for_range(builder, constant(2), intp=i64) as part:  # the whole rows, then what is left as one
            is_whole = builder.icmp_signed("==", part.index, constant(0))
            count = builder.select(is_whole, rows, constant(1))
            cols = builder.select(is_whole, width, builder.sub(size, whole))
            begin = builder.select(is_whole, start, builder.add(start, whole))
            builder.store(constant(0), done)
            for blocks in BLOCKS:
                left = builder.sub(cols, builder.load(done))
                with cgutils.for_range(builder, builder.sdiv(left, constant(LANES * blocks)), intp=i64):
                    columns(Vectors(builder, LANES), blocks, begin, count, builder.load(done))
                    builder.store(builder.add(builder.load(done), constant(LANES * blocks)), done)
            left = builder.sub(cols, builder.load(done))
            with builder.if_then(builder.icmp_signed(">", left, constant(0))):
                columns(Vectors(builder, LANES, left), 1, begin, count, builder.load(done))
        return context.get_dummy_value()

    def typed(context, arrays, start, size, numbers, kept, sums):
        given = *arrays, *numbers, *kept, *sums
        if not all(isinstance(g, types.Array) and g.dtype == types.float32 and g.layout == "C" for g in given):
            return None
        return types.void(arrays, types.int64, types.int64, numbers, kept, sums), generate

    return intrinsic(typed)
