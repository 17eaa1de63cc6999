"""Which implementation of an operation runs: resolved once, per operation, when a plan is bound.

Fallback is data: a backend is asked for an operation and gives the best it has, down to the NumPy definition, so a
missing fast kernel is never a missing feature. "numba" needs an importable Numba; "numpy" always works. "c" is Numba's
loop nests on the register tile of the C library instead of their own; "c-avx2" and the like are that tile for another
instruction set than the best this CPU has.
"""

from collections.abc import Callable
from dataclasses import dataclass

from ..errors import ConfigError
from . import native
from .operation import Operation

NAMES = ("auto", "numba", "numpy", "c", *(f"c-{name}" for name in native.TILES), "null")

PRECISIONS = ("float32", "bf16")


@dataclass(frozen=True)
class Backend:
    """A set of kernels: its name ("numba", "numpy", "c" or "null"), how many threads its nests use, why it was chosen,
    and the C tile its nests use, if they do."""

    name: str
    threads: int
    reason: str
    c_tile: str | None = None

    def function(self, operation: Operation, args: tuple) -> Callable:
        """The implementation of an operation for arguments of these types, compiled if it has to be."""
        if self.name == "null":
            return _nothing
        if self.name == "numpy" or operation.loops is None:
            return operation.reference
        from .numba_backend import compile_for

        return compile_for(operation, args, parallel=self.threads > 1, c_tile=self.c_tile)


def _nothing(*args: object) -> None:
    """What a kernel of the backend "null" does: what is left is the time that a step takes outside of kernels."""


def numba_problem() -> str | None:
    """Why Numba cannot be used here, or None."""
    try:
        import numba
    except Exception as error:  # a broken install raises all kinds of errors
        return f"Numba cannot be imported ({type(error).__name__}: {error})"
    return None if hasattr(numba, "njit") else "Numba is incomplete"


def bf16_problem() -> str | None:
    """Why precision "bf16" cannot be used here, or None."""
    problem = numba_problem()
    if problem is not None:
        return problem
    from .numba_backend import bf16_problem

    return bf16_problem()


def check_precision(precision: str, kernels: str) -> None:
    """Raises ConfigError for a precision that these kernels, or this CPU, do not have."""
    if precision not in PRECISIONS:
        raise ConfigError("precision", expected="one of " + ", ".join(map(repr, PRECISIONS)), got=repr(precision))
    if precision == "float32":
        return
    fix = "Use precision='float32'"
    if kernels not in ("auto", "numba"):
        expected = "'float32' with these kernels: only Numba's know bfloat16"
        fix = "Use kernels='numba', or precision='float32'"
        raise ConfigError("precision", expected=expected, got=f"{precision!r} with kernels={kernels!r}", fix=fix)
    problem = bf16_problem()
    if problem is not None:
        raise ConfigError("precision='bf16'", expected="AVX512-BF16, for Numba's kernels", got=problem, fix=fix)


def select(name: str = "auto", threads: int = 1) -> Backend:
    """The backend of that name; "auto" is Numba where it can be imported, else NumPy. Raises ConfigError."""
    if name not in NAMES:
        raise ConfigError("kernels", expected="one of " + ", ".join(map(repr, NAMES)), got=repr(name))
    if name == "null":
        return Backend("null", 1, "no kernels: nothing is computed")
    problem = numba_problem() if name != "numpy" else None
    if name == "numpy":
        return Backend("numpy", 1, "NumPy definitions, as asked")
    if problem is None:
        import numba

        numba_here = f"Numba {numba.__version__}, {threads} thread{'s' * (threads > 1)}"
        if name in ("auto", "numba"):
            return Backend("numba", threads, numba_here)
        tile = _c_tile(name)
        return Backend("c", threads, f"{numba_here}, on the C tile {tile.name}", tile.name)
    if name != "auto":
        raise ConfigError("kernels", expected="an importable Numba", got=problem, fix="Use kernels='numpy'")
    return Backend("numpy", 1, f"NumPy definitions: {problem}")


def _c_tile(name: str) -> native.Tile:
    """The tile that "c" or "c-…" means. Raises ConfigError."""
    if not native.available:
        raise ConfigError("kernels", expected="the C library", got=native.reason, fix="Use kernels='numba'")
    tile = native.tile(name.partition("-")[2] or "auto")
    if tile is None:
        here = ", ".join(f"'c-{known}'" for known in native.tiles())
        raise ConfigError("kernels", expected=f"a tile that this CPU can run: {here}", got=repr(name))
    return tile
