"""Buffers: arrays that a plan speaks of before they have memory.

    space      who has it                        what is in it
    arena      one worker, reused within a chunk  activations, their gradients, scratch
    io         one worker                        images, targets, sample numbers, clock, scale, metrics of the chunk
    row        one worker, then its shared row   the chunk's gradients and measured statistics
    common     one worker, for all its chunks    what all workers have made from all rows, see `Meet`
    panels     all workers (batch-wide)          rows of x and dy for dense layers
    state      all workers, two copies           parameters and running statistics
    gradient   all workers (batch-wide)          the batch's gradient, same layout as state

A space is one block of bytes; a buffer is a place in it. Views (reshapes, shared gradients) point to another buffer.
"""

from __future__ import annotations

import math

import numpy as np

ALIGNMENT = 64  # bytes: a cache line, and a vector of AVX-512


def aligned(size: int) -> int:
    """Bytes rounded up to whole cache lines."""
    return (size + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT


class Buffer:
    """An array of a plan: shape, dtype and space; its byte offset is given when the plan is laid out."""

    def __init__(self, shape: tuple[int, ...], dtype: str, space: str, base: Buffer | None = None):
        self.shape, self.dtype, self.space = tuple(shape), np.dtype(dtype), space
        self._base = base
        self.offset = -1

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def root(self) -> Buffer:
        """The buffer that has the memory."""
        buffer = self
        while buffer._base is not None:
            buffer = buffer._base
        return buffer

    def reshape(self, shape: tuple[int, ...]) -> Buffer:
        """The same memory in another shape."""
        assert math.prod(shape) == math.prod(self.shape), (self.shape, shape)
        return Buffer(shape, self.dtype.str, self.space, base=self)

    def share(self, other: Buffer) -> None:
        """Let this buffer, and all that share it, be the memory of `other`."""
        mine, theirs = self.root, other.root
        if mine is not theirs:
            assert mine.nbytes == theirs.nbytes
            mine._base = theirs

    def array(self, spaces: dict[str, np.ndarray]) -> np.ndarray:
        """The array, given each space's bytes."""
        root = self.root
        assert root.offset >= 0, "buffer was never laid out"
        block = spaces[root.space][root.offset : root.offset + root.nbytes]
        return block.view(self.dtype).reshape(self.shape)


def place_by_lifetime(lifetimes: dict[Buffer, tuple[int, int]]) -> int:
    """Give offsets to buffers so that those alive at the same time never overlap; the bytes needed.

    Greedy by size: the largest first, each at the lowest place that is free during its (first, last) steps.
    """
    placed: list[Buffer] = []
    total = 0
    for buffer in sorted(lifetimes, key=lambda b: (-b.nbytes, lifetimes[b])):
        first, last = lifetimes[buffer]
        rivals = [b for b in placed if lifetimes[b][0] <= last and first <= lifetimes[b][1]]
        offset = 0
        for rival in sorted(rivals, key=lambda b: b.offset):
            if offset + aligned(buffer.nbytes) <= rival.offset:
                break
            offset = max(offset, rival.offset + aligned(rival.nbytes))
        buffer.offset = offset
        placed.append(buffer)
        total = max(total, offset + aligned(buffer.nbytes))
    return total
