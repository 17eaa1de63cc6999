"""The turned tile: a product of rows of a and columns of b, stored with its rows as columns; and turning alone.

    turned_tile    c[j][m] = Σ_l  a[m][l] · b[l][j]      m < rows, j < cols
    turn           c[j][m] = a[m][j]

The gradient of a dense layer's input, dx = dy·wᵀ, has its sums along rows of w as they lie; the samples are the vector
(j). The register tile (`tile.py`) would give dxᵀ. Here a square of sums is turned in registers before it is stored, by
exchanging halves, quarters, … of its vectors. Each element is one chain of fused multiply-adds in the order of l.
"""

from collections.abc import Callable
from typing import Any

from .intrinsic import Code, make_intrinsic
from .vectors import LANES, Vectors

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

    def __init__(self, code: Code, height: int, side: int, rows: Any, cols: Any):
        self.code, self.builder, self.height, self.side = code, code.builder, height, side
        self.rows, self.cols = rows, cols

    def each(self, part: Callable[[Any, Any, Any], None]) -> None:
        """The code of part(m0, j0, rows left) for each; rows left: None if there are enough."""
        from numba.core import cgutils

        builder, height, side = self.builder, self.code.number(self.height), self.code.number(self.side)
        down, across = (
            builder.sdiv(builder.add(count, self.code.number(size - 1)), self.code.number(size))
            for count, size in ((self.rows, self.height), (self.cols, self.side))
        )
        with cgutils.for_range(builder, down, intp=self.code.i64) as i:
            m0 = builder.mul(i.index, height)
            left = builder.sub(self.rows, m0)
            with cgutils.for_range(builder, across, intp=self.code.i64) as k:
                j0 = builder.mul(k.index, side)
                with builder.if_else(self.code.less(left, height)) as (edge, whole):
                    with whole:
                        part(m0, j0, None)
                    with edge:
                        part(m0, j0, left)

    def places(self, a: Any, a_row: Any, left: Any) -> list[Any]:
        """Where the rows of a part begin; those that are not there are the last one again."""
        builder, row = self.builder, [self.code.number(m) for m in range(self.height)]
        if left is not None:
            last = builder.sub(left, self.code.number(1))
            row = [self.code.smaller(m, last) for m in row]
        return [self.code.at(a, builder.mul(m, a_row)) for m in row]

    def store(self, v: Vectors, values: list[Any], c: Any, c_row: Any, j0: Any) -> None:
        """Vectors j0 … of `cols` as rows of c."""
        builder, there = self.builder, self.builder.sub(self.cols, j0)
        for j, value in enumerate(values):
            with builder.if_then(self.code.less(self.code.number(j), there), likely=True):
                v.store(value, self.code.at(c, builder.mul(self.code.number(j), c_row)))


def make_turned_tile(rows: int):
    """`turned_tile` as LLVM code for Numba, on a CPU that holds so many rows of LANES floats in registers; float32
    only."""
    from llvmlite import ir
    from numba.core import cgutils

    side = side_for(rows)

    def body(code, given):
        builder, at = code.builder, code.at

        def by_parts(height):
            g = _Parts(code, height, side, given.rows, given.cols)

            def part(m0, j0, left):
                v = Vectors(builder, side)
                a_place = g.places(at(given.a, given.a0, builder.mul(m0, given.a_row)), given.a_row, left)
                b_place = at(given.b, given.b0, j0)
                sums = [cgutils.alloca_once_value(builder, ir.Constant(v.kind, None)) for _ in a_place]
                with cgutils.for_range(builder, given.steps, intp=code.i64) as step:
                    factor = v.load(at(b_place, builder.mul(step.index, given.b_step)))
                    for place, total in zip(a_place, sums, strict=True):
                        value = v.splat(code.load(place, step.index))
                        builder.store(v.fma(value, factor, builder.load(total)), total)
                columns = _turned(builder, [builder.load(total) for total in sums], side)
                place = at(given.c, given.c0, m0, builder.mul(j0, given.c_row))
                g.store(Vectors(builder, height, left), columns, place, given.c_row, j0)

            g.each(part)

        if side <= 8:
            by_parts(side)
        else:  # more rows than the nearest cache may be able to hold at a time
            over = builder.srem(given.a_row, code.number(CONFLICT))
            with builder.if_else(builder.icmp_signed("==", over, code.number(0))) as (few, many):
                with few:
                    by_parts(side // 2)
                with many:
                    by_parts(side)

    return make_intrinsic(turned_tile, body, float32=("a", "b", "c"))


def make_turn(rows: int):
    """`turn` as LLVM code for Numba, likewise."""
    side = side_for(rows)

    def body(code, given):
        builder, at = code.builder, code.at
        g = _Parts(code, side, side, given.rows, given.cols)

        def part(m0, j0, left):
            v = Vectors(builder, side, builder.sub(given.cols, j0))
            first = at(given.a, given.a0, builder.mul(m0, given.a_row), j0)
            rows_of_a = [v.load(place) for place in g.places(first, given.a_row, left)]
            place = at(given.c, given.c0, m0, builder.mul(j0, given.c_row))
            g.store(Vectors(builder, side), _turned(builder, rows_of_a, side), place, given.c_row, j0)

        g.each(part)

    return make_intrinsic(turn, body, float32=("a", "c"))
