"""The register tile of the C library (csrc/tile.c) in nests that Numba compiles: called as `tile.py` defines it.

A compiled nest knows the C function by a symbol only, so it can be kept on disk. LLVM is told what the symbol stands
for before the nest is compiled or loaded: one that it does not know would end the process.
"""

from functools import cache

from . import native


@cache
def linked(name: str) -> native.Tile:
    """The C tile of that name, whose functions LLVM knows from now on."""
    import llvmlite.binding

    found = native.tile(name)
    if found is None:
        raise LookupError(f"no C tile {name!r} here; there are: {', '.join(native.tiles()) or 'none'}")
    for near, address in ((False, found.any), (True, found.near)):
        llvmlite.binding.add_symbol(_symbol(name, near), address)
    return found


def _symbol(name: str, near: bool) -> str:
    return f"corenet_{'near_' if near else ''}tile_{name}"


def make_c_tile(name: str, near: bool):
    """The tile as a call of C code for Numba; float32 only."""
    from llvmlite import ir
    from numba import types
    from numba.core import cgutils
    from numba.extending import intrinsic

    height = linked(name).rows
    i64, floats, numbers = ir.IntType(64), ir.FloatType().as_pointer(), ir.IntType(64).as_pointer()
    # As corenet_tile_function of csrc/tile.h: a, a_row, rows, a_tap, b_tap, taps, length, a_step, b, b_step, c, c_row,
    # cols, start.
    parameters = [
        floats, numbers, i64, numbers, numbers, i64, i64, i64, floats, i64, floats, numbers, i64, floats,
    ]  # fmt: skip

    def generate(context, builder, signature, args):
        def array(index):
            return context.make_array(signature.args[index])(context, builder, value=args[index])

        def at(index, offset):
            return builder.gep(array(index).data, [offset])

        a, a0, a_row, m0, rows, a_tap, b_tap, length, a_step = range(9)
        b, b0, b_step, c, c0, c_row, cols, start, start0 = range(9, 18)
        taps = builder.extract_value(array(a_tap).shape, 0)
        given = builder.icmp_signed(">", builder.extract_value(array(start).shape, 0), ir.Constant(i64, 0))
        begin = builder.select(given, at(start, args[start0]), ir.Constant(floats, None))
        function = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(ir.VoidType(), parameters), _symbol(name, near)
        )
        # A near tile of few columns has up to 2·ROWS rows in Numba: here these are two.
        high, one = ir.Constant(i64, height), ir.Constant(i64, height - 1)
        with cgutils.for_range(builder, builder.sdiv(builder.add(args[rows], one), high), intp=i64) as part:
            done = builder.mul(part.index, high)
            first, left = builder.add(args[m0], done), builder.sub(args[rows], done)
            count = builder.select(builder.icmp_signed("<", left, high), left, high)
            builder.call(
                function,
                [
                    at(a, args[a0]), at(a_row, first), count, array(a_tap).data, array(b_tap).data, taps,
                    args[length], args[a_step], at(b, args[b0]), args[b_step], at(c, args[c0]), at(c_row, first),
                    args[cols], begin,
                ],
            )  # fmt: skip
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
