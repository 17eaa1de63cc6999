"""Winner tiles: sums over the winners of a max-pool, in registers.

    gather_winners    c[c_row[m] + j] += Σ_{i,t} dy[i,t,k] · x[i·image + first[t] + inside[which[i,t,k]] + x_row[m] + j]
    scatter_winners   c[c_row[m] + j] += Σ_k     dy[k] · w[k·size + w_row[m] + j]       over all k with which[k] = place

for m < rows and j < cols. In `tile.py` the rows of a tile have factors of their own and share b; here they share the
factor, and each has a row of its own. That serves where most factors are 0: behind a max-pool only one pixel of each
window has a gradient (`pooled_conv.py`). Each element is one chain of fused multiply-adds, in the order (i, t) or k.
"""

from .intrinsic import make_intrinsic
from .vectors import LANES, NARROW, Vectors

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


class _Blocks:
    """The code that goes over the rows and columns of c in blocks whose sums stay in registers.

    add(sums, vectors, rows) makes the code that adds to sums[m][v], m-th row and v-th vector, what comes from `rows`:
    offsets from `table`, to which the block's column is added. pairs: two vectors of LANES at a time.
    """

    def __init__(self, code, given, c0, table, pairs, add):
        self.code, self.given, self.c0, self.table, self.pairs, self.add = code, given, c0, table, pairs, add

    def write(self):
        """All columns: while more than LANES are left, whole vectors; then one with a mask."""
        from numba.core import cgutils

        code, builder, cols = self.code, self.code.builder, self.given.cols
        lanes, step = code.number(LANES), code.number(LANES * (1 + self.pairs))
        done = cgutils.alloca_once_value(builder, code.number(0))

        def left():
            return builder.sub(cols, builder.load(done))

        many = builder.sdiv(builder.sub(builder.add(cols, builder.sub(step, code.number(1))), lanes), step)
        with cgutils.for_range(builder, many, intp=code.i64):
            second = [Vectors(builder, LANES, builder.sub(left(), lanes))] if self.pairs else []
            self._rows([Vectors(builder, LANES), *second], builder.load(done))
            builder.store(builder.add(builder.load(done), step), done)
        with builder.if_else(code.less(code.number(NARROW), left())) as (wide, narrow):
            with wide:
                self._rows([Vectors(builder, LANES, left())], builder.load(done))
            with narrow, builder.if_then(code.less(code.number(0), left())):
                self._rows([Vectors(builder, NARROW, left())], builder.load(done))

    def _rows(self, vectors, column):
        """Five rows at a time, then three, then the rest."""
        from numba.core import cgutils

        code, builder, rows = self.code, self.code.builder, self.given.rows
        done = cgutils.alloca_once(builder, code.i64)
        builder.store(code.number(0), done)
        for height in HEIGHTS:
            count = builder.sdiv(builder.sub(rows, builder.load(done)), code.number(height))
            with cgutils.for_range(builder, count, intp=code.i64):
                first = builder.load(done)
                self._block(vectors, column, [code.plus(first, m) for m in range(height)])
                builder.store(code.plus(first, height), done)
        first, last = builder.load(done), builder.sub(rows, code.number(1))
        with builder.if_then(code.less(first, rows)):  # rows that are not there: the last one again, to the same end
            self._block(vectors, column, [code.smaller(code.plus(first, m), last) for m in range(HEIGHTS[-1] - 1)])

    def _block(self, vectors, column, rows):
        from numba.core import cgutils

        code, given, builder = self.code, self.given, self.code.builder
        starts = [builder.add(builder.add(self.c0, column), code.load(given.c_row, m)) for m in rows]
        places = [[code.at(given.c, code.plus(s, v * LANES)) for v in range(len(vectors))] for s in starts]
        # LLVM's mem2reg turns them into registers.
        sums = [[cgutils.alloca_once(builder, v.kind) for v in vectors] for _ in rows]
        for line, totals in zip(places, sums, strict=True):
            for v, place, total in zip(vectors, line, totals, strict=True):
                builder.store(v.load(place), total)
        self.add(sums, vectors, [builder.add(column, code.load(self.table, m)) for m in rows])
        for line, totals in zip(places, sums, strict=True):
            for v, place, total in zip(vectors, line, totals, strict=True):
                v.store(builder.load(total), place)


def _add_rows(code, factor, start, sums, vectors, rows):
    """The code of sums += factor · the rows from `start` on."""
    splat = {v.lanes: v.splat(factor) for v in vectors}
    for totals, offset in zip(sums, rows, strict=True):
        for number, (v, total) in enumerate(zip(vectors, totals, strict=True)):
            values = v.load(code.at(start, code.plus(offset, number * LANES)))
            code.builder.store(v.fma(splat[v.lanes], values, code.builder.load(total)), total)


def make_gather_winners(rows: int):
    """gather_winners as LLVM code for Numba, where that many rows of the register tile fit; float32 only."""
    from numba.core import cgutils

    def body(code, given):
        builder, windows = code.builder, code.lengths["first"]

        def add(sums, vectors, rows):
            with cgutils.for_range(builder, given.n, intp=code.i64) as image:
                x = code.at(given.x, builder.mul(image.index, given.image))
                before = builder.mul(image.index, windows)
                with cgutils.for_range(builder, windows, intp=code.i64) as window:
                    entry = builder.add(builder.mul(builder.add(before, window.index), given.K), given.k)
                    place = code.load(given.inside, builder.zext(code.load(given.which, entry), code.i64))
                    start = code.at(x, builder.add(code.load(given.first, window.index), place))
                    _add_rows(code, code.load(given.dy, entry), start, sums, vectors, rows)

        _Blocks(code, given, code.number(0), given.x_row, rows >= 8, add).write()

    return make_intrinsic(gather_winners, body, float32=("x", "dy", "c"))


def make_scatter_winners(rows: int):
    """scatter_winners as LLVM code for Numba, where that many rows of the register tile fit; float32 only."""
    from llvmlite import ir
    from numba.core import cgutils

    def body(code, given):
        builder = code.builder

        def winners(k0):
            """The channels from k0 on that have won here, as bits."""
            there, first = Vectors(builder, LANES, builder.sub(given.K, k0)), builder.add(given.entry, k0)
            value, which = there.load(code.at(given.dy, first)), there.load(code.at(given.which, first))
            alive = builder.fcmp_unordered("!=", value, ir.Constant(value.type, [0.0] * LANES))
            place = there.splat(builder.trunc(given.place, which.type.element), which.type)
            won = builder.and_(builder.icmp_signed("==", which, place), alive)
            return builder.zext(builder.bitcast(won, ir.IntType(LANES)), code.i64)

        def add(sums, vectors, rows):
            groups = builder.sdiv(code.plus(given.K, LANES - 1), code.number(LANES))
            bits = cgutils.alloca_once(builder, code.i64)
            with cgutils.for_range(builder, groups, intp=code.i64) as group:
                k0 = builder.mul(group.index, code.number(LANES))
                builder.store(winners(k0), bits)
                with cgutils.for_range(builder, code.call("llvm.ctpop.i64", builder.load(bits)), intp=code.i64):
                    left = builder.load(bits)
                    lowest = code.call("llvm.cttz.i64", left, ir.Constant(ir.IntType(1), 1))
                    builder.store(builder.and_(left, code.plus(left, -1)), bits)
                    k = builder.add(k0, lowest)
                    start = code.at(given.w, builder.mul(k, given.size))
                    _add_rows(code, code.load(given.dy, builder.add(given.entry, k)), start, sums, vectors, rows)

        _Blocks(code, given, given.c0, given.w_row, rows >= 8, add).write()

    return make_intrinsic(scatter_winners, body, float32=("dy", "w", "c"))
