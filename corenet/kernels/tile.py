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

from .operation import device

LANES = 16  # columns: floats in one vector
ROWS = 8  # rows: accumulators in flight; `rows_for` gives the number that fits this CPU when compiling


@device
def padded(count, multiple):
    """`count` rounded up to a multiple; tables of rows are this long, since a tile reads ROWS entries at a time."""
    return (count + multiple - 1) // multiple * multiple


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
    """The tile where rows of a are neighbours, a_row[m + 1] = a_row[m] + 1: one address serves all of them."""
    tile(a, a0, a_row, m0, rows, a_tap, b_tap, length, a_step, b, b0, b_step, c, c0, c_row, cols, start, start0)


def make_tile(rows: int, near: bool):
    """The tile as LLVM code for Numba, `rows` rows high; float32 only."""
    from llvmlite import ir
    from numba import types
    from numba.core import cgutils
    from numba.extending import intrinsic

    i64, i32, f32 = ir.IntType(64), ir.IntType(32), ir.FloatType()
    vector = ir.VectorType(f32, LANES)
    zero = ir.Constant(vector, [0.0] * LANES)
    bits = ir.VectorType(ir.IntType(1), LANES)
    same_lane = ir.Constant(ir.VectorType(i32, LANES), [0] * LANES)
    names = [
        "a",
        "a0",
        "a_row",
        "m0",
        "rows",
        "a_tap",
        "b_tap",
        "length",
        "a_step",
        "b",
        "b0",
        "b_step",
        "c",
        "c0",
        "c_row",
        "cols",
        "start",
        "start0",
    ]

    def splat(builder, scalar, of=vector):
        one = builder.insert_element(ir.Constant(of, ir.Undefined), scalar, ir.Constant(i32, 0))
        return builder.shuffle_vector(one, ir.Constant(of, ir.Undefined), same_lane)

    def generate(context, builder, signature, args):
        arg = dict(zip(names, args, strict=True))
        for name, kind in zip(names, signature.args, strict=True):
            if isinstance(kind, types.Array):
                arg[name] = context.make_array(kind)(context, builder, value=arg[name]).data
        taps = context.make_array(signature.args[5])(context, builder, value=args[5])
        tap_count = builder.extract_value(taps.shape, 0)
        starts = context.make_array(signature.args[16])(context, builder, value=args[16])
        given = builder.icmp_signed(">", builder.extract_value(starts.shape, 0), ir.Constant(i64, 0))

        def at(pointer, index):
            return builder.gep(pointer, [index])

        def function(name, result, *parameters):
            return cgutils.get_or_insert_function(builder.module, ir.FunctionType(result, parameters), name)

        fma = function(f"llvm.fmuladd.v{LANES}f32", vector, vector, vector, vector)
        pointer = vector.as_pointer()
        masked_load = function(f"llvm.masked.load.v{LANES}f32.p0", vector, pointer, i32, bits, vector)
        masked_store = function(f"llvm.masked.store.v{LANES}f32.p0", ir.VoidType(), vector, pointer, i32, bits)
        lanes = ir.VectorType(i64, LANES)
        mask = builder.icmp_signed("<", ir.Constant(lanes, list(range(LANES))), splat(builder, arg["cols"], lanes))
        align = ir.Constant(i32, 4)
        row_index = [builder.add(arg["m0"], ir.Constant(i64, m)) for m in range(rows)]
        a_offset = [builder.load(at(arg["a_row"], m)) for m in row_index]
        c_pointer = [
            builder.bitcast(at(arg["c"], builder.add(arg["c0"], builder.load(at(arg["c_row"], m)))), pointer)
            for m in row_index
        ]

        def body(load, store, a_offset):
            # Allocas of whole vectors: LLVM's mem2reg turns them into the register accumulators.
            sums = [cgutils.alloca_once(builder, vector) for _ in range(rows)]
            with builder.if_else(given) as (new, old):
                with new:
                    first = load(builder.bitcast(at(arg["start"], arg["start0"]), pointer))
                    for m in range(rows):
                        builder.store(first, sums[m])
                with old:
                    for m in range(rows):
                        builder.store(load(c_pointer[m]), sums[m])
            with cgutils.for_range(builder, tap_count, intp=i64) as tap:
                a_base = builder.add(arg["a0"], builder.load(at(arg["a_tap"], tap.index)))
                b_base = at(arg["b"], builder.add(arg["b0"], builder.load(at(arg["b_tap"], tap.index))))
                a_base_of = [at(arg["a"], builder.add(a_base, offset)) for offset in a_offset]
                with cgutils.for_range(builder, arg["length"], intp=i64) as step:
                    b_at = at(b_base, builder.mul(step.index, arg["b_step"]))
                    b_row = load(builder.bitcast(b_at, pointer))
                    a_at = builder.mul(step.index, arg["a_step"])
                    for m in range(rows):
                        value = splat(builder, builder.load(at(a_base_of[m], a_at)))
                        builder.store(builder.call(fma, [value, b_row, builder.load(sums[m])]), sums[m])
            for m in range(rows):
                with builder.if_then(builder.icmp_signed("<", ir.Constant(i64, m), arg["rows"])):
                    store(builder.load(sums[m]), c_pointer[m])

        def plain_load(place):
            return builder.load(place, align=4)

        def plain_store(value, place):
            builder.store(value, place, align=4)

        full = builder.icmp_signed(">=", arg["cols"], ir.Constant(i64, LANES))
        with builder.if_else(full) as (whole, edge):
            with whole:
                if near:  # one address and constants, unless rows are missing at the end of a
                    all_rows = builder.icmp_signed(">=", arg["rows"], ir.Constant(i64, rows))
                    with builder.if_else(all_rows) as (high, low):
                        with high:
                            neighbours = [builder.add(a_offset[0], ir.Constant(i64, m)) for m in range(rows)]
                            body(plain_load, plain_store, neighbours)
                        with low:
                            body(plain_load, plain_store, a_offset)
                else:
                    body(plain_load, plain_store, a_offset)
            with edge:
                body(
                    lambda p: builder.call(masked_load, [p, align, mask, zero]),
                    lambda v, p: builder.call(masked_store, [v, p, align, mask]),
                    a_offset,
                )
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
