"""Loop nests compiled by Numba: serial or parallel, kept on disk.

A nest is plain Python whose global names `prange`, `tile`, `ROWS` and device functions stand for their compiled
counterparts. `_rebuild` makes the function Numba sees: the same code under a name of its own (serial and parallel
variants of one function would collide in Numba's cache), with those globals put in place.

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

import llvmlite.binding
import numba
from numba.core import config

from .max_tile import make_max_tile, max_tile
from .operation import Operation
from .patch import Patch, make_patch
from .sparse_tile import make_sparse_tile, sparse_tile
from .tile import make_tile, near_tile, rows_for, tile


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
def _tile(near: bool):
    return make_tile(tile_rows(), near)


_patch = cache(make_patch)
_sparse_tile = cache(make_sparse_tile)
_max_tile = cache(make_max_tile)


@cache
def tile_rows() -> int:
    """Rows of the register tile on this CPU."""
    features = config.CPU_FEATURES  # type: ignore[attr-defined]
    if features is None:
        features = ",".join(f"+{name}" for name, on in llvmlite.binding.get_host_cpu_features().items() if on)
    return rows_for(features, platform.machine())


@cache
def _device(function: Callable):
    return numba.njit(nogil=True, error_model="numpy")(_rebuild(function, function.__name__))


def _rebuild(function: Callable, name: str) -> Callable:
    names = dict(function.__globals__)
    for key in function.__code__.co_names:
        value = names.get(key)
        if value is range:
            names[key] = numba.prange
        elif value in (tile, near_tile):
            names[key] = _tile(value is near_tile)
        elif value in (sparse_tile, max_tile):
            names[key] = _sparse_tile() if value is sparse_tile else _max_tile()
        elif isinstance(value, Patch):
            names[key] = _patch(value)
        elif getattr(value, "is_device", False):
            names[key] = _device(value)
    if "ROWS" in names:
        names["ROWS"] = tile_rows()
    code = function.__code__.replace(co_name=name)
    rebuilt = types.FunctionType(code, names, name, function.__defaults__, function.__closure__)
    rebuilt.__qualname__ = name
    rebuilt.__module__ = function.__module__
    return rebuilt


@cache
def dispatcher(operation: Operation, parallel: bool):
    """Numba's dispatcher of an operation's nest; nothing is compiled yet."""
    loops = operation.loops
    assert loops is not None
    parallel = parallel and "prange" in loops.__code__.co_names
    name = f"{operation.name.replace('.', '_')}_{'parallel' if parallel else 'serial'}"
    rebuilt = _rebuild(loops, name)
    user_setting = config.CACHE_DIR  # type: ignore[attr-defined]
    config.CACHE_DIR = cache_folder()  # type: ignore[attr-defined]
    try:
        return numba.njit(cache=True, nogil=True, error_model="numpy", parallel=parallel)(rebuilt)
    finally:
        config.CACHE_DIR = user_setting  # type: ignore[attr-defined]  # the process's own Numba code keeps its own cache


def compile_for(operation: Operation, args: tuple, parallel: bool) -> Callable:
    """Compile the nest for these arguments' types, or load it from the cache; the compiled function."""
    compiled = dispatcher(operation, parallel)
    compiled.compile(tuple(numba.typeof(value) for value in args))
    return compiled
