"""Arrays between guard words: a kernel that writes outside its array is caught, and what it reads there is NaN.

┌────────── one block, filled with a pattern ──────────┐
│ guard │ array, cache-line aligned            │ guard │      an unplanned write changes the pattern,
└───────┴──────────────────────────────────────┴───────┘      an unplanned read of a float gives NaN
"""

import ctypes
import mmap
from collections.abc import Callable

import numpy as np

from corenet.engine import aligned_bytes

GUARD = 4096  # bytes: more than a tile's rows are apart in the cases here


def pattern(dtype: np.dtype) -> int:
    """The byte that fills guards and unwritten outputs: NaN as a float, not a value that integer kernels write."""
    return 0xFF if dtype.kind == "f" else 0xA5


class Fence:
    """Hands out arrays between guard words, and checks the guards of all of them."""

    def __init__(self):
        self._blocks: list[tuple[np.ndarray, int, int]] = []

    def empty(self, shape, dtype) -> np.ndarray:
        """A new array of that shape, filled like its guards."""
        dtype = np.dtype(dtype)
        size = int(np.prod(shape)) * dtype.itemsize
        block = aligned_bytes(GUARD + size + GUARD)
        block[:] = pattern(dtype)
        self._blocks.append((block, size, pattern(dtype)))
        return block[GUARD : GUARD + size].view(dtype).reshape(shape)

    def copy(self, values: np.ndarray) -> np.ndarray:
        """A guarded copy."""
        array = self.empty(values.shape, values.dtype)
        array[...] = values
        return array

    def check(self) -> None:
        """Fail if a guard was written to."""
        for block, size, byte in self._blocks:
            before, after = block[:GUARD], block[GUARD + size :]
            assert (before == byte).all(), "written before the beginning of an array"
            assert (after == byte).all(), "written beyond the end of an array"


def run_guarded(function: Callable, args: list, written: list[int], filled: list[int]) -> list:
    """Call a kernel with guarded copies of its arrays and give these; `filled` ones begin as NaN (or 0xA5 …).

    Fails if a guard, or an array that is not in `written`, was written to.
    """
    fence = Fence()
    guarded = [
        a if not isinstance(a, np.ndarray) else fence.empty(a.shape, a.dtype) if i in filled else fence.copy(a)
        for i, a in enumerate(args)
    ]
    function(*guarded)
    fence.check()
    for i, (before, after) in enumerate(zip(args, guarded, strict=True)):
        if isinstance(before, np.ndarray) and i not in written:
            assert before.tobytes() == after.tobytes(), f"argument {i} is an input and was written to"
    return guarded


def at_the_edge(values: np.ndarray, after: bool) -> np.ndarray:
    """A copy that ends (or begins) at a page which the process may not touch: reading there, too, ends the process."""
    page = mmap.PAGESIZE
    pages = -(-values.nbytes // page)
    memory = mmap.mmap(-1, (pages + 1) * page)
    forbidden = ctypes.addressof(ctypes.c_char.from_buffer(memory)) + (pages * page if after else 0)
    protect = ctypes.CDLL(None, use_errno=True).mprotect
    protect.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    if protect(forbidden, page, 0):
        raise OSError(ctypes.get_errno(), "mprotect")
    start = pages * page - values.nbytes if after else page
    block = np.frombuffer(memory, np.uint8, values.nbytes, start)
    array = block.view(values.dtype).reshape(values.shape)
    array[...] = values
    return array
