"""The register tile of the C library (csrc/tile.c) in nests that Numba compiles: called as `tile.py` defines it.

A compiled nest knows the C function by a symbol only, so it can be kept on disk. LLVM is told what the symbol stands
for before the nest is compiled or loaded: one that it does not know would end the process.
"""

from functools import cache

from . import native
from .intrinsic import make_intrinsic
from .tile import tile


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
    from numba.core import cgutils

    height = linked(name).rows
    i64, floats, numbers = ir.IntType(64), ir.FloatType().as_pointer(), ir.IntType(64).as_pointer()
    # As corenet_tile_function of csrc/tile.h: a, a_row, rows, a_tap, b_tap, taps, length, a_step, b, b_step, c, c_row,
    # cols, start.
    parameters = [
        floats, numbers, i64, numbers, numbers, i64, i64, i64, floats, i64, floats, numbers, i64, floats,
    ]  # fmt: skip

    def body(code, given):
        builder, at = code.builder, code.at
        begins = code.less(code.number(0), code.lengths["start"])
        start = builder.select(begins, at(given.start, given.start0), ir.Constant(floats, None))
        function = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(ir.VoidType(), parameters), _symbol(name, near)
        )
        # A near tile of few columns has up to 2·ROWS rows in Numba: here these are two.
        high = code.number(height)
        with cgutils.for_range(builder, builder.sdiv(code.plus(given.rows, height - 1), high), intp=i64) as part:
            done = builder.mul(part.index, high)
            first, count = builder.add(given.m0, done), code.smaller(builder.sub(given.rows, done), high)
            builder.call(
                function,
                [
                    at(given.a, given.a0), at(given.a_row, first), count, given.a_tap, given.b_tap,
                    code.lengths["a_tap"], given.length, given.a_step, at(given.b, given.b0), given.b_step,
                    at(given.c, given.c0), at(given.c_row, first), given.cols, start,
                ],
            )  # fmt: skip

    return make_intrinsic(tile, body, float32=("a", "b", "c", "start"))
