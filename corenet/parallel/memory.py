"""Shared memory: one anonymous block that holds named arrays, seen by the parent and every worker at once.

     parent                                      the kernel's memory                        worker
    ────────                                    ─────────────────────                      ────────
    Segment.create(fields) ── makes ──▶  ┌──────────────────────────────┐
      .arrays["params"] ──── a view ──▶  │ params                       │ ◀── a view ── .arrays["params"]
      .arrays["rows"] ────── a view ──▶  │ rows     each starts at a    │ ◀── a view ── .arrays["rows"]
                                         │ ...      multiple of 64      │
                                         └──────────────────────────────┘
      .fd, .spec ─────────────── over the channel ───────────────────────────▶ Segment.attach(fd, spec)

The block has no name, only file descriptors. So nothing can be left behind in /dev/shm, whoever is killed and however:
the kernel frees the block with its last descriptor and mapping. Nor does /dev/shm's size, 64 MB in many containers,
limit it. Where the system has no such memory, the block is a temporary file that is deleted before it is used.

No page exists until somebody writes to it, and then it lies close to the core of who did: workers touch what they own
first.
"""

import math
import mmap
import os
import resource
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from ..errors import ConfigError
from . import cgroup

ALIGNMENT = 64  # bytes: a cache line, and the widest vector register

Spec = list[list[Any]]  # [name, shape, dtype, offset in bytes] of each array; JSON can carry it


class NotEnoughMemoryError(ConfigError, MemoryError):
    """The shared memory that a run needs is more than this machine or container has left."""


class Segment:
    """One block of shared memory and the arrays in it; make it with `create`, and in a worker with `attach`."""

    def __init__(self, fd: int, spec: Spec):
        self.fd = fd
        self.spec = spec
        self.size = _size(spec)
        block = mmap.mmap(fd, self.size)  # shared, readable and writable
        self.arrays: dict[str, np.ndarray] = {
            name: np.ndarray(tuple(shape), dtype=dtype, buffer=block, offset=offset)
            for name, shape, dtype, offset in spec
        }

    @classmethod
    def create(
        cls, fields: Mapping[str, tuple[tuple[int, ...], Any]], *, directory: str | Path | None = None,
        promised: int = 0,
    ) -> "Segment":  # fmt: skip
        """Allocate the arrays `{name: (shape, dtype)}`, filled with zeros.

        `directory` asks for a deleted file there instead of memory, for what is larger than memory; `promised` are
        bytes of other segments that nobody has written to yet. Raises NotEnoughMemoryError (a MemoryError) if there is
        too little of either.
        """
        spec = _plan(fields)
        size = _size(spec)
        _check_file_limit(size)
        in_memory = directory is None and hasattr(os, "memfd_create")
        fd = _memory(size, promised) if in_memory else _deleted_file(size, directory)
        try:
            return cls(fd, spec)
        except BaseException:
            os.close(fd)
            raise

    @classmethod
    def attach(cls, fd: int, spec: Spec) -> "Segment":
        """Map a block that another process created; the descriptor `fd` belongs to the segment from here on."""
        actual = os.fstat(fd).st_size
        if actual < _size(spec):  # touching pages beyond the end would kill the process
            raise ConfigError(f"shared memory with descriptor {fd}", expected=f"{_size(spec)} bytes", got=actual)
        return cls(fd, spec)

    def __getitem__(self, name: str) -> np.ndarray:
        return self.arrays[name]

    @property
    def untouched(self) -> int:
        """Bytes that take no memory yet, because nobody has written to them."""
        return max(0, self.size - os.fstat(self.fd).st_blocks * 512)

    def close(self) -> None:
        """Give the block up in this process; arrays that are still in use stay valid and keep the memory alive."""
        if self.fd < 0:
            return
        os.close(self.fd)
        self.fd = -1
        # Never mmap.close(): NumPy does not announce its views to it, so it would pull the memory from under them. The
        # mapping goes with the last array that refers to it.
        self.arrays = {}

    def __enter__(self) -> "Segment":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def _check_file_limit(size: int) -> None:
    """Shared memory is a file to the system, and too long a file ends who makes it. Raises NotEnoughMemoryError."""
    limit, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    if limit != resource.RLIM_INFINITY and size > limit:
        expected, fix = f"{size} bytes of the limit on the size of files", "Raise that limit (ulimit -f)"
        raise NotEnoughMemoryError("shared memory of this run", expected=expected, got=limit, fix=fix)


def _plan(fields: Mapping[str, tuple[tuple[int, ...], Any]]) -> Spec:
    """Lay the arrays out one after the other."""
    spec: Spec = []
    offset = 0
    for name, (shape, dtype) in fields.items():
        dtype = np.dtype(dtype)
        if dtype.hasobject or dtype.names or dtype.subdtype or dtype.itemsize == 0:
            raise ConfigError(f"shared array {name!r}", expected="a dtype of plain numbers", got=dtype)
        lengths = [int(length) for length in shape]
        if min(lengths, default=0) < 0:
            raise ConfigError(f"shared array {name!r}", expected="lengths of 0 or more", got=shape)
        spec.append([name, lengths, dtype.str, offset])
        offset = _end(spec[-1])
    return spec


def _end(field: list[Any]) -> int:
    """Where the array after this one may start. Python's integers, so a huge shape cannot overflow."""
    _, shape, dtype, offset = field
    used = math.prod(shape) * np.dtype(dtype).itemsize
    return offset + max(1, -(-used // ALIGNMENT)) * ALIGNMENT  # at least a line: an empty array must lie inside


def _size(spec: Spec) -> int:
    return max((_end(field) for field in spec), default=ALIGNMENT)


def _memory(size: int, promised: int) -> int:
    """A descriptor of `size` bytes of memory, which exist once they are written to; so do the `promised` ones."""
    free: int = psutil.virtual_memory().available
    limit = cgroup.memory_free(Path("/"))  # of the container, if this is one
    free = free if limit is None else min(free, limit)
    if size + promised > free:
        raise _shortage(
            size + promised, "memory", free, "Use a smaller batch size, net or data set, or free some memory"
        )
    fd = os.memfd_create("corenet")
    os.ftruncate(fd, size)
    return fd


def _deleted_file(size: int, directory: str | Path | None) -> int:
    """A descriptor of a file of `size` bytes that no folder lists any more."""
    fd, path = tempfile.mkstemp(prefix="corenet-", dir=directory)
    os.unlink(path)
    disk = os.fstatvfs(fd)
    free = disk.f_bavail * disk.f_frsize
    try:
        if size > free:
            where = os.path.dirname(path)
            raise _shortage(size, f"space in {where}", free, "Free some, or set TMPDIR to a folder on a larger disk")
        if hasattr(os, "posix_fallocate"):  # a disk found full later would kill whoever writes to the mapping
            os.posix_fallocate(fd, 0, size)
        os.ftruncate(fd, size)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _shortage(needed: int, what: str, free: int, fix: str) -> NotEnoughMemoryError:
    needs, has = f"{needed / 1e9:.2f} GB", f"{free / 1e9:.2f} GB"
    return NotEnoughMemoryError(
        "shared memory of this run", expected=f"{needs} of free {what}", got=f"{has} free", fix=fix
    )
