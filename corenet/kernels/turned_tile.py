"""The turned tile: a product of rows of a and columns of b, stored with its rows as columns; and turning alone.

    turned_tile    c[j][m] = Σ_l  a[m][l] · b[l][j]      m < rows, j < cols
    turn           c[j][m] = a[m][j]

The gradient of a dense layer's input, dx = dy·wᵀ, has its sums along rows of w as they lie; the samples are the vector
(j). The register tile (`tile.py`) would give dxᵀ. Here a square of sums is turned in registers before it is stored, by
exchanging halves, quarters, … of its vectors. Each element is one chain of fused multiply-adds in the order of l.
"""

from collections.abc import Callable
from typing import Any

from .tile import LANES
from .vectors import Vectors

CONFLICT = 512  # floats: rows that are a multiple of it apart meet at few places of the nearest cache, eight at each


def side_for(rows: int) -> int:
    """The side of the square, in vectors and in floats, where registers hold `rows` rows of LANES floats."""
    return LANES if rows >= 8 else LANES // 2 if rows >= 5 else LANES // 4


def turned_tile(a, a0, a_row, rows, b, b0, b_step, steps, c, c0, c_row, cols):
    """The product; rows of a are a_row apart, of b b_step, of c c_row. Rows of b can be read as far as to a multiple of
    LANES columns. All arrays are flat."""
    for j in range(cols):
        for m in range(rows):
            total = c.dtype.type(0)
            for step in range(steps):
                total += a[a0 + m * a_row + step] * b[b0 + step * b_step + j]
            c[c0 + j * c_row + m] = total


def turn(a, a0, a_row, rows, c, c0, c_row, cols):
    """Rows of a become columns of c. Rows of c may be written as far as to a multiple of LANES columns. All arrays are
    flat."""
    for m in range(rows):
        for j in range(cols):
            c[c0 + j * c_row + m] = a[a0 + m * a_row + j]


def _turned(builder: Any, rows: list[Any], lanes: int) -> list[Any]:
    """The columns of as many vectors as they have lanes, or of half as many, as vectors: bit by bit, the number of the
    lane and that of the vector are exchanged."""
    from llvmlite import ir

    def mixed(a, b, places):
        return builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(ir.IntType(32), len(places)), places))

    side = len(rows)
    if side < lanes:
        halves = ([mixed(row, row, list(range(first, first + side))) for row in rows] for first in (0, side))
        return [column for half in halves for column in _turned(builder, half, side)]
    values, distance = list(rows), side // 2
    while distance:
        low = [lane if not lane & distance else lane - distance + side for lane in range(side)]
        high = [lane + distance if not lane & distance else lane + side for lane in range(side)]
        for m in range(side):
            if not m & distance:
                pair = values[m], values[m + distance]
                values[m], values[m + distance] = mixed(*pair, low), mixed(*pair, high)
        distance //= 2
    return values


class _Parts:
    """Code for rows × cols elements, in parts of `height` rows by `side` columns; those at the edge read only the rows
    that are there."""

    def __init__(self, builder: Any, height: int, side: int, rows: Any, cols: Any):
        from llvmlite import ir

        self.builder, self.height, self.side, self.i64 = builder, height, side, ir.IntType(64)
        self.rows, self.cols = rows, cols

    def number(self, value: int) -> Any:
        from llvmlite import ir

        return ir.Constant(self.i64, value)

    def at(self, pointer: Any, *offsets: Any) -> Any:
        for offset in offsets:
            pointer = self.builder.gep(pointer, [offset])
        return pointer

    def less(self, a: Any, b: Any) -> Any:
        return self.builder.icmp_signed("<", a, b)

    def each(self, part: Callable[[Any, Any, Any], None]) -> None:
        """The code of part(m0, j0, rows left) for each; rows left: None if there are enough."""
        from numba.core import cgutils

        builder, height, side = self.builder, self.number(self.height), self.number(self.side)
        down, across = (
            builder.sdiv(builder.add(count, self.number(size - 1)), self.number(size))
            for count, size in ((self.rows, self.height), (self.cols, self.side))
        )
        with cgutils.for_range(builder, down, intp=self.i64) as i:
            m0 = builder.mul(i.index, height)
            left = builder.sub(self.rows, m0)
            with cgutils.for_range(builder, across, intp=self.i64) as k:
                j0 = builder.mul(k.index, side)
                with builder.if_else(self.less(left, height)) as (edge, whole):
                    with whole:
                        part(m0, j0, None)
                    with edge:
                        part(m0, j0, left)

    def places(self, a: Any, a_row: Any, left: Any) -> list[Any]:
        """Where the rows of a part begin; those that are not there are the last one again."""
        builder, row = self.builder, [self.number(m) for m in range(self.height)]
        if left is not None:
            last = builder.sub(left, self.number(1))
            row = [builder.select(self.less(m, last), m, last) for m in row]
        return [self.at(a, builder.mul(m, a_row)) for m in row]

    def store(self, v: Vectors, values: list[Any], c: Any, c_row: Any, j0: Any) -> None:
        """Vectors j0 … of `cols` as rows of c."""
        builder, there = self.builder, self.builder.sub(self.cols, j0)
        for j, value in enumerate(values):
            with builder.if_then(self.less(self.number(j), there), likely=True):
                v.store(value, self.at(c, builder.mul(self.number(j), c_row)))


def make_turned_tile(rows: int):
    """`turned_tile` as LLVM code for Numba, on a CPU that holds so many rows of LANES floats in registers; float32
    only."""
    from llvmlite import ir
    from numba import types
    from numba.core import cgutils
    from numba.extending import intrinsic

    side = side_for(rows)

    def generate(context, builder, signature, args):
        a, a0, a_row, rows, b, b0, b_step, steps, c, c0, c_row, cols = _pointers(context, builder, signature, args)

        def by_parts(height):
            g = _Parts(builder, height, side, rows, cols)

            def part(m0, j0, left):
                v = Vectors(builder, side)
                a_place = g.places(g.at(a, a0, builder.mul(m0, a_row)), a_row, left)
                b_place = g.at(b, b0, j0)
                sums = [cgutils.alloca_once_value(builder, ir.Constant(v.kind, None)) for _ in a_place]
                with cgutils.for_range(builder, steps, intp=g.i64) as step:
                    factor = v.load(g.at(b_place, builder.mul(step.index, b_step)))
                    for place, total in zip(a_place, sums, strict=True):
                        value = v.splat(builder.load(g.at(place, step.index)))
                        builder.store(v.fma(value, factor, builder.load(total)), total)
                columns = _turned(builder, [builder.load(total) for total in sums], side)
                g.store(Vectors(builder, height, left), columns, g.at(c, c0, m0, builder.mul(j0, c_row)), c_row, j0)

            g.each(part)

        if side <= 8:
            by_parts(side)
        else:  # more rows than the nearest cache may be able to hold at a time
            zero, conflict = ir.Constant(a_row.type, 0), ir.Constant(a_row.type, CONFLICT)
            with builder.if_else(builder.icmp_signed("==", builder.srem(a_row, conflict), zero)) as (few, many):
                with few:
                    by_parts(side // 2)
                with many:
                    by_parts(side)
        return context.get_dummy_value()

    def typed(context, a, a0, a_row, rows, b, b0, b_step, steps, c, c0, c_row, cols):
        given = a, a0, a_row, rows, b, b0, b_step, steps, c, c0, c_row, cols
        return _floats_only(types, given), generate

    return intrinsic(typed)


def make_turn(rows: int):
    """`turn` as LLVM code for Numba, likewise."""
    from numba import types
    from numba.extending import intrinsic

    side = side_for(rows)

    def generate(context, builder, signature, args):
        a, a0, a_row, rows, c, c0, c_row, cols = _pointers(context, builder, signature, args)
        g = _Parts(builder, side, side, rows, cols)

        def part(m0, j0, left):
            v = Vectors(builder, side, builder.sub(cols, j0))
            rows_of_a = [v.load(place) for place in g.places(g.at(a, a0, builder.mul(m0, a_row), j0), a_row, left)]
            place = g.at(c, c0, m0, builder.mul(j0, c_row))
            g.store(Vectors(builder, side), _turned(builder, rows_of_a, side), place, c_row, j0)

        g.each(part)
        return context.get_dummy_value()

    def typed(context, a, a0, a_row, rows, c, c0, c_row, cols):
        return _floats_only(types, (a, a0, a_row, rows, c, c0, c_row, cols)), generate

    return intrinsic(typed)


def _pointers(context: Any, builder: Any, signature: Any, args: Any) -> list[Any]:
    """The arguments, arrays as pointers to their first element."""
    from numba import types

    return [
        context.make_array(kind)(context, builder, value=arg).data if isinstance(kind, types.Array) else arg
        for kind, arg in zip(signature.args, args, strict=True)
    ]


def _floats_only(types: Any, given: tuple) -> Any:
    """The signature for these arguments: arrays of float32, and integers."""
    if any(isinstance(g, types.Array) and g.dtype != types.float32 for g in given):
        return None
    return types.void(*(g if isinstance(g, types.Array) else types.int64 for g in given))
