"""Loop nests compiled by Numba: serial or parallel, kept on disk.

A nest is plain Python whose global names `prange`, `tile`, `ROWS` and device functions stand for their compiled
counterparts. `_rebuild` makes the function Numba sees: the same code under a name of its own (variants of one function,
serial or parallel, on Numba's tile or one of C, would collide in Numba's cache), with those globals put in place.

The on-disk cache lives in a folder named by a hash of every kernel source and of the versions that compile them, so an
edited helper, another Numba or another corenet never meets a stale entry. No fast-math: results are the same bits in
both variants. Denormals and exceptions are the calling thread's business.
"""

import hashlib
import os
import platform
import tempfile
import types
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite.binding
import numba
from numba.core import config

from .bf16_tile import bf16_tile, make_bf16_tile
from .bfloat16 import FEATURE, make_pair_rows, make_round_row, pair_rows, round_row
from .c_tile import linked, make_c_tile
from .channel_tile import channel_sums, channel_tile, make_channel_sums, make_channel_tile
from .max_tile import make_max_tile, max_tile
from .operation import Operation
from .patch import Patch, make_patch
from .pooled_tile import make_pooled_tile, near_pooled_tile, pooled_tile
from .row_pass import RowPass, make_row_pass
from .strip import make_strip, strip
from .tile import make_tile, near_tile, rows_for, tile
from .turned_tile import make_turn, make_turned_tile, turn, turned_tile
from .winner_tile import gather_winners, make_gather_winners, make_scatter_winners, scatter_winners


def source_key() -> str:
    """A hash of all kernel sources and of what compiles them."""
    digest = hashlib.sha256(f"{numba.__version__} {llvmlite.__version__} {platform.machine()}".encode())
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


@cache
def cache_folder() -> str:
    """The folder of compiled kernels: the user's cache, or a temporary one where that cannot be written."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    folder = os.path.join(base, "corenet", source_key())
    try:
        os.makedirs(folder, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except OSError:
        folder = os.path.join(tempfile.gettempdir(), f"corenet-{os.getuid()}-{source_key()}")
        os.makedirs(folder, mode=0o700, exist_ok=True)
        if os.stat(folder).st_uid != os.getuid():  # somebody else's folder: never load code from it
            folder = tempfile.mkdtemp(prefix="corenet-")
        return folder


@cache
def _tile(near: bool, c_tile: str | None):
    return make_c_tile(c_tile, near) if c_tile else make_tile(tile_rows(), near)


_patch = cache(make_patch)
_row_pass = cache(make_row_pass)


def cpu_features() -> str:
    """What code may use, as LLVM writes it ("+avx2,…"): NUMBA_CPU_FEATURES, or what this CPU has."""
    features = config.CPU_FEATURES  # type: ignore[attr-defined]
    if features is None:
        features = ",".join(f"+{name}" for name, on in llvmlite.binding.get_host_cpu_features().items() if on)
    return features


@cache
def tile_rows(c_tile: str | None = None) -> int:
    """Rows of the register tile on this CPU: Numba's, or the C library's of that name."""
    if c_tile:
        return linked(c_tile).rows
    return rows_for(cpu_features(), platform.machine())


def bf16_problem() -> str | None:
    """Why there is no code for bfloat16 here, or None."""
    if f"+{FEATURE}" in cpu_features().split(","):
        return None
    if platform.machine() in ("aarch64", "arm64"):
        return "an Arm CPU, whose instructions for bfloat16 corenet does not use yet"
    chosen = config.CPU_FEATURES is not None  # type: ignore[attr-defined]
    return "NUMBA_CPU_FEATURES or NUMBA_CPU_NAME without it" if chosen else "a CPU without it"


INTRINSICS: dict[Callable, Callable] = {  # others than the register tile; some know how many rows of it fit this CPU
    max_tile: make_max_tile,
    pooled_tile: lambda: make_pooled_tile(tile_rows(), near=False),
    near_pooled_tile: lambda: make_pooled_tile(tile_rows(), near=True),
    gather_winners: lambda: make_gather_winners(tile_rows()),
    scatter_winners: lambda: make_scatter_winners(tile_rows()),
    strip: make_strip,
    channel_tile: lambda: make_channel_tile(tile_rows()),
    channel_sums: lambda: make_channel_sums(tile_rows()),
    turned_tile: lambda: make_turned_tile(tile_rows()),
    turn: lambda: make_turn(tile_rows()),
    bf16_tile: make_bf16_tile,
    round_row: make_round_row,
    pair_rows: make_pair_rows,
}
IN_BF16 = bf16_tile, round_row, pair_rows


@cache
def _make(function: Callable) -> Callable:
    return INTRINSICS[function]()


def _intrinsic(function: Callable) -> Callable:
    """What takes the place of a function of INTRINSICS. Raises LookupError where LLVM could only end the process."""
    problem = bf16_problem() if function in IN_BF16 else None
    if problem is not None:
        raise LookupError(f"{function.__name__} needs AVX512-BF16, here is {problem}")
    return _make(function)


@cache
def _device(function: Callable, c_tile: str | None = None):
    # Only nests may call it: without wrappers for other callers it is compiled sooner, and Python would crash.
    how: dict[str, Any] = {"nogil": True, "error_model": "numpy", "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    return numba.njit(**how)(_rebuild(function, function.__name__, c_tile))


def _uses_tile(function: Callable) -> bool:
    """Whether a nest or a device function calls the tile, or functions that do."""
    used = [function.__globals__.get(name) for name in function.__code__.co_names]
    return any(
        value in (tile, near_tile) or (getattr(value, "is_device", False) and _uses_tile(value))
        for value in used
        if callable(value)
    )


def _rebuild(function: Callable, name: str, c_tile: str | None) -> Callable:
    names = dict(function.__globals__)
    for key in function.__code__.co_names:
        value = names.get(key)
        if value is range:
            names[key] = numba.prange
        elif value in (tile, near_tile):
            names[key] = _tile(value is near_tile, c_tile)
        elif isinstance(value, Patch):
            names[key] = _patch(value)
        elif isinstance(value, RowPass):
            names[key] = _row_pass(value)
        elif getattr(value, "is_device", False):
            names[key] = _device(value, c_tile)
        elif isinstance(value, types.FunctionType) and value in INTRINSICS:
            names[key] = _intrinsic(value)
    if "ROWS" in names:
        names["ROWS"] = tile_rows(c_tile)
    code = function.__code__.replace(co_name=name)
    rebuilt = types.FunctionType(code, names, name, function.__defaults__, function.__closure__)
    rebuilt.__qualname__ = name
    rebuilt.__module__ = function.__module__
    return rebuilt


def dispatcher(operation: Operation, parallel: bool, c_tile: str | None = None):
    """Numba's dispatcher of an operation's nest; nothing is compiled yet. Nests without a tile have no C variant."""
    loops = operation.loops
    assert loops is not None
    parallel = parallel and "prange" in loops.__code__.co_names
    return _dispatcher(operation, parallel, c_tile if _uses_tile(loops) else None)


@cache
def _dispatcher(operation: Operation, parallel: bool, c_tile: str | None):
    loops = operation.loops
    assert loops is not None
    # The number of rows is part of the name: a library that was built anew may have another, and nests rely on it.
    tile_name = f"_c_{c_tile}_{tile_rows(c_tile)}" if c_tile else ""
    name = f"{operation.name.replace('.', '_')}{tile_name}_{'parallel' if parallel else 'serial'}"
    rebuilt = _rebuild(loops, name, c_tile)
    user_setting = config.CACHE_DIR  # type: ignore[attr-defined]
    config.CACHE_DIR = cache_folder()  # type: ignore[attr-defined]
    try:
        how: dict[str, Any] = {
            "cache": True,
            "nogil": True,
            "error_model": "numpy",
            "no_cfunc_wrapper": True,
            "parallel": parallel,
        }
        return numba.njit(**how)(rebuilt)
    finally:
        config.CACHE_DIR = user_setting  # type: ignore[attr-defined]  # the process's own Numba code keeps its own cache


def compile_for(operation: Operation, args: tuple, parallel: bool, c_tile: str | None = None) -> Callable:
    """Compile the nest for these arguments' types, or load it from the cache; the compiled function."""
    compiled = dispatcher(operation, parallel, c_tile)
    compiled.compile(tuple(numba.typeof(value) for value in args))
    return compiled
