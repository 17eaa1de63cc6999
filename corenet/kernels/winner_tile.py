"""Winner tiles: sums over the winners of a max-pool, in registers.

    gather_winners    c[c_row[m] + j] += Σ_{i,t} dy[i,t,k] · x[i·image + first[t] + inside[which[i,t,k]] + x_row[m] + j]
    scatter_winners   c[c_row[m] + j] += Σ_k     dy[k] · w[k·size + w_row[m] + j]       over all k with which[k] = place

for m < rows and j < cols. In `tile.py` the rows of a tile have factors of their own and share b; here they share the
factor, and each has a row of its own. That serves where most factors are 0: behind a max-pool only one pixel of each
window has a gradient (`pooled_conv.py`). Each element is one chain of fused multiply-adds, in the order (i, t) or k.
"""

import inspect

from .tile import LANES, NARROW
from .vectors import Vectors

HEIGHTS = 5, 3  # rows that go together: filters mostly have three or five


def gather_winners(x, image, first, inside, dy, which, k, K, n, x_row, rows, c, c_row, cols):
    """Add what all windows of n images have won in channel k, of K, to `rows` rows of `cols` columns of c.

    All arrays are flat; `first` has an entry for each window, `inside` one for each place in it.
    """
    windows = first.shape[0]
    for m in range(rows):
        for j in range(cols):
            total = c[c_row[m] + j]
            for i in range(n):
                for t in range(windows):
                    at = (i * windows + t) * K + k
                    total += dy[at] * x[i * image + first[t] + inside[which[at]] + x_row[m] + j]
            c[c_row[m] + j] = total


def scatter_winners(dy, which, entry, K, place, w, size, w_row, rows, c, c0, c_row, cols):
    """Add the rows of w of those of K channels, from dy[entry] on, that this place of a window has won, to `rows` rows
    of `cols` columns of c, at c0. A channel whose dy is 0 is left out; all arrays are flat."""
    for m in range(rows):
        for j in range(cols):
            total = c[c0 + c_row[m] + j]
            for k in range(K):
                if which[entry + k] == place and dy[entry + k] != 0:
                    total += dy[entry + k] * w[k * size + w_row[m] + j]
            c[c0 + c_row[m] + j] = total


class _Code:
    """What the LLVM code of both has in common: sums in registers, block by block of rows and columns."""

    def __init__(self, context, builder, function, signature, args):
        from llvmlite import ir
        from numba import types

        self.builder, self.i64, self.given, self.lengths = builder, ir.IntType(64), {}, {}
        for name, kind, arg in zip(inspect.signature(function).parameters, signature.args, args, strict=True):
            if isinstance(kind, types.Array):
                array = context.make_array(kind)(context, builder, value=arg)
                self.given[name], self.lengths[name] = array.data, builder.extract_value(array.shape, 0)
            else:
                self.given[name] = arg

    def load(self, name, index):
        """An element of an array."""
        return self.builder.load(self.at(self.given[name], index))

    def constant(self, value):
        from llvmlite import ir

        return ir.Constant(self.i64, value)

    def at(self, pointer, index):
        return self.builder.gep(pointer, [index])

    def blocks(self, pairs, c0, table, add):
        """add(sums, vectors, rows) makes the code that adds to sums[m][v], m-th row and v-th vector, for blocks that
        cover all rows and columns: `rows` are offsets from that table, to which the block's column is added. pairs: two
        vectors of LANES at a time."""
        from numba.core import cgutils

        builder, column = self.builder, cgutils.alloca_once_value(self.builder, self.constant(0))
        lanes, step = self.constant(LANES), LANES * (1 + pairs)

        def left():
            return builder.sub(self.given["cols"], builder.load(column))

        def columns(*vectors):
            self._by_rows(vectors, builder.load(column), c0, table, add)

        wide = builder.sdiv(
            builder.sub(builder.add(self.given["cols"], self.constant(step - 1)), lanes), self.constant(step)
        )
        with cgutils.for_range(builder, wide, intp=self.i64):  # while more than LANES are left
            second = [Vectors(builder, LANES, builder.sub(left(), lanes))] if pairs else []
            columns(Vectors(builder, LANES), *second)
            builder.store(builder.add(builder.load(column), self.constant(step)), column)
        with builder.if_else(builder.icmp_signed("<", self.constant(NARROW), left())) as (many, few):
            with many:
                columns(Vectors(builder, LANES, left()))
            with few, builder.if_then(builder.icmp_signed("<", self.constant(0), left())):
                columns(Vectors(builder, NARROW, left()))

    def _by_rows(self, vectors, column, c0, table, add):
        """Five rows at a time, then three, then the rest."""
        from numba.core import cgutils

        builder = self.builder
        done = cgutils.alloca_once_value(builder, self.constant(0))
        builder.store(self.constant(0), done)
        for height in HEIGHTS:
            count = builder.sdiv(builder.sub(self.given["rows"], builder.load(done)), self.constant(height))
            with cgutils.for_range(builder, count, intp=self.i64):
                m0 = builder.load(done)
                self._block(vectors, m0, height, True, column, c0, table, add)
                builder.store(builder.add(m0, self.constant(height)), done)
        m0 = builder.load(done)
        with builder.if_then(builder.icmp_signed("<", m0, self.given["rows"])):
            self._block(vectors, m0, HEIGHTS[-1] - 1, False, column, c0, table, add)

    def _block(self, vectors, m0, height, whole, column, c0, table, add):
        """Rows m0 … m0 + height; unless they are `whole`, those that are not there repeat the last one, and are not
        stored."""
        from numba.core import cgutils

        builder = self.builder
        row = [builder.add(m0, self.constant(m)) for m in range(height)]
        if not whole:
            last = builder.sub(self.given["rows"], self.constant(1))
            row = [builder.select(builder.icmp_signed("<", m, last), m, last) for m in row]
        starts = [builder.add(builder.add(c0, column), self.load("c_row", m)) for m in row]
        places = [
            [self.at(self.given["c"], self.plus(start, v * LANES)) for v in range(len(vectors))] for start in starts
        ]
        sums = [
            [cgutils.alloca_once(builder, v.kind) for v in vectors] for _ in row
        ]  # LLVM's mem2reg turns them into registers
        for line, totals in zip(places, sums, strict=True):
            for v, place, total in zip(vectors, line, totals, strict=True):
                builder.store(v.load(place), total)
        add(sums, vectors, [builder.add(column, self.load(table, m)) for m in row])
        for m in range(height):
            with builder.if_then(builder.icmp_signed("<", builder.add(m0, self.constant(m)), self.given["rows"])):
                for v, place, total in zip(vectors, places[m], sums[m], strict=True):
                    v.store(builder.load(total), place)

    def plus(self, value, number):
        return self.builder.add(value, self.constant(number)) if number else value

    def add_row(self, factor, start, sums, vectors, rows):
        """sums += factor · the rows at start."""
        splat = {v.lanes: v.splat(factor) for v in vectors}
        for totals, offset in zip(sums, rows, strict=True):
            for number, (v, total) in enumerate(zip(vectors, totals, strict=True)):
                place = self.at(start, self.plus(offset, number * LANES))
                self.builder.store(v.fma(splat[v.lanes], v.load(place), self.builder.load(total)), total)


def _intrinsic(function, floats, generate):
    """Numba's intrinsic of that signature; the arrays named are float32."""
    from numba import types
    from numba.extending import intrinsic

    names = list(inspect.signature(function).parameters)

    def typed(context, *given):
        if not all(kind.dtype == types.float32 for name, kind in zip(names, given, strict=True) if name in floats):
            return None
        return types.void(*(g if isinstance(g, types.Array) else types.int64 for g in given)), generate

    # Numba hands over arguments by the names it finds here.
    parameters = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in ("context", *names)]
    typed.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return intrinsic(typed)


def make_gather_winners(rows: int):
    """gather_winners as LLVM code for Numba, where that many rows of the register tile fit; float32 only."""
    from numba.core import cgutils

    def generate(context, builder, signature, args):
        code = _Code(context, builder, gather_winners, signature, args)
        given, i64, windows = code.given, code.i64, code.lengths["first"]

        def add(sums, vectors, rows):
            with cgutils.for_range(builder, given["n"], intp=i64) as image:
                x = code.at(given["x"], builder.mul(image.index, given["image"]))
                before = builder.mul(image.index, windows)
                with cgutils.for_range(builder, windows, intp=i64) as window:
                    entry = builder.add(builder.mul(builder.add(before, window.index), given["K"]), given["k"])
                    place = code.load("inside", builder.zext(code.load("which", entry), i64))
                    start = code.at(x, builder.add(code.load("first", window.index), place))
                    code.add_row(code.load("dy", entry), start, sums, vectors, rows)

        code.blocks(rows >= 8, code.constant(0), "x_row", add)
        return context.get_dummy_value()

    return _intrinsic(gather_winners, ("x", "dy", "c"), generate)


def make_scatter_winners(rows: int):
    """scatter_winners as LLVM code for Numba, where that many rows of the register tile fit; float32 only."""
    from llvmlite import ir
    from numba.core import cgutils

    def generate(context, builder, signature, args):
        code = _Code(context, builder, scatter_winners, signature, args)
        given, i64 = code.given, code.i64

        def call(name, *operands):
            function = ir.FunctionType(i64, [operand.type for operand in operands])
            return builder.call(cgutils.get_or_insert_function(builder.module, function, name), operands)

        def winners(k0):
            """The channels from k0 on that have won here, as bits."""
            there = Vectors(builder, LANES, builder.sub(given["K"], k0))
            first = builder.add(given["entry"], k0)
            value, which = there.load(code.at(given["dy"], first)), there.load(code.at(given["which"], first))
            alive = builder.fcmp_unordered("!=", value, ir.Constant(value.type, [0.0] * LANES))
            place = there.splat(builder.trunc(given["place"], which.type.element), which.type)
            won = builder.and_(builder.icmp_signed("==", which, place), alive)
            return builder.zext(builder.bitcast(won, ir.IntType(LANES)), i64)

        def add(sums, vectors, rows):
            groups = builder.add(given["K"], code.constant(LANES - 1))
            with cgutils.for_range(builder, builder.sdiv(groups, code.constant(LANES)), intp=i64) as group:
                k0 = builder.mul(group.index, code.constant(LANES))
                mask = cgutils.alloca_once(builder, i64)
                builder.store(winners(k0), mask)
                with cgutils.for_range(builder, call("llvm.ctpop.i64", builder.load(mask)), intp=i64):
                    left = builder.load(mask)
                    k = builder.add(k0, call("llvm.cttz.i64", left, ir.Constant(ir.IntType(1), 1)))
                    builder.store(builder.and_(left, builder.sub(left, code.constant(1))), mask)
                    start = code.at(given["w"], builder.mul(k, given["size"]))
                    code.add_row(code.load("dy", builder.add(given["entry"], k)), start, sums, vectors, rows)

        code.blocks(rows >= 8, given["c0"], "w_row", add)
        return context.get_dummy_value()

    return _intrinsic(scatter_winners, ("dy", "w", "c"), generate)
