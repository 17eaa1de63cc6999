"""The door to the C library `corenet._native` (csrc/): is it there, why not, and its functions for the calling thread.

Without it every function here does nothing and says so, so callers need no second path: corenet computes the same with
its Numba and NumPy kernels, slower.
"""

import importlib.util
from typing import Any, NamedTuple

TILES = ("avx512", "avx2", "neon", "baseline")  # instruction sets that csrc/tile.c has been written for, the best first

lib: Any = None
ffi: Any = None
library: str | None = None  # the shared library's path
reason: str

try:
    from .. import _native
except ImportError as error:
    if importlib.util.find_spec("corenet._native") is None:
        reason = "no C library: corenet was installed without a working C compiler"
    else:
        reason = f"no C library: {error}"
else:
    lib, ffi, library = _native.lib, _native.ffi, _native.__file__
    reason = f"built from csrc/ with {ffi.string(lib.corenet_compiler()).decode()}"

available: bool = lib is not None


def set_flush_to_zero(on: bool) -> None:
    """Count numbers too small for a normal float32 as 0, or stop doing so, in the calling thread only."""
    if available:
        lib.corenet_set_flush_to_zero(bool(on))


def flush_to_zero() -> bool:
    """Whether the calling thread counts numbers too small for a normal float32 as 0."""
    return available and bool(lib.corenet_flush_to_zero())


class Tile(NamedTuple):
    """A register tile: its instruction set, its rows, and the addresses of its two functions (csrc/tile.h)."""

    name: str
    rows: int
    any: int
    near: int


def tile(name: str = "auto") -> Tile | None:
    """The C library's tile for an instruction set, "auto": the best one; None if this CPU or the library lacks it."""
    found = lib.corenet_tile_select(name.encode()) if available else None
    if not found:
        return None
    any_rows, near_rows = (int(ffi.cast("uintptr_t", function)) for function in (found.any, found.near))
    return Tile(ffi.string(found.name).decode(), found.rows, any_rows, near_rows)


def tiles() -> list[str]:
    """The instruction sets this CPU has a tile for, the best first."""
    return [name for name in TILES if tile(name) is not None]
