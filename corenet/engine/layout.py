"""The flat state vector: every parameter and running statistic of a net, in one run of memory.

     0                    row_end            stat_end                              size
     ├── parameters ───────┼── statistics ─────┼── dense weights ───────────────────┤
     │  gradient: chunk    │  measured by each │  gradient: one product per batch,  │
     │  rows, tree sum     │  chunk, merged    │  rows dealt to shard owners        │

A chunk's row has the layout of the first two parts, the batch's gradient that of all three, so one offset serves all.
Every entry begins at a multiple of 64 bytes.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass

import numpy as np

from .buffer import aligned

PARTS = ("row", "statistic", "product")  # in the order of memory


@dataclass(frozen=True)
class Entry:
    """One named array: where it lies in the state vector (in elements), its shape, and which part it belongs to."""

    name: str
    shape: tuple[int, ...]
    part: str
    offset: int

    @property
    def size(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True)
class Layout:
    """All entries in the order of the net, the ends of the parts in elements, and the float type."""

    entries: tuple[Entry, ...]
    row_end: int
    stat_end: int
    size: int
    dtype: np.dtype

    @staticmethod
    def of(arrays: list[tuple[str, tuple[int, ...], str]], dtype: np.dtype) -> Layout:
        """Lay out (name, shape, part) triples given in the order of the net."""
        offsets: dict[str, int] = {}
        ends = []
        position = 0
        for part in PARTS:
            for name, shape, its_part in arrays:
                if its_part == part:
                    offsets[name] = position
                    position += aligned(math.prod(shape) * dtype.itemsize) // dtype.itemsize
            ends.append(position)
        entries = tuple(Entry(name, shape, part, offsets[name]) for name, shape, part in arrays)
        row_end, stat_end, size = ends
        return Layout(entries, row_end, stat_end, size, dtype)

    def get(self, state: np.ndarray, entry: Entry) -> np.ndarray:
        """An entry's array within a state vector."""
        return state[entry.offset : entry.offset + entry.size].reshape(entry.shape)

    def arrays(self, state: np.ndarray) -> dict[str, np.ndarray]:
        """All entries by name, as views of a state vector; empty ones (a bias that is not there) are left out."""
        return {entry.name: self.get(state, entry) for entry in self.entries if entry.size}

    @property
    def parameters(self) -> tuple[Entry, ...]:
        """The trained entries, in the order of the net."""
        return tuple(e for e in self.entries if e.part != "statistic" and e.size)

    def parameter_count(self) -> int:
        """How many numbers are trained."""
        return sum(e.size for e in self.parameters)

    def sha256(self, state: np.ndarray) -> str:
        """Hash of all parameters, flat, in the order of the net, as little-endian float32."""
        digest = hashlib.sha256()
        for entry in self.parameters:
            digest.update(np.ascontiguousarray(self.get(state, entry), "<f4").tobytes())
        return digest.hexdigest()
