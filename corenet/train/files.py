"""Writing files so that a reader never sees half of one."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

from ..errors import FileError


def write_atomically(path: str | Path, content: bytes) -> None:
    """Replace the file by content in one step: a temporary file beside it, flushed, then renamed. Raises FileError."""
    path = Path(path)
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(temporary, 0o666 & ~mask)  # mkstemp's files are private, a result is not
        os.replace(temporary, path)
    except OSError as error:
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        raise FileError(f"cannot write {path}", got=error.strerror or str(error), fix="Nothing was changed") from error


def make_folder(path: Path) -> None:
    """Make a folder, unless there is one, and see whether files can be made in it. Raises FileError."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        fix = "Choose another folder"
        raise FileError(f"cannot write to the folder {path}", got=error.strerror or str(error), fix=fix) from error


def give_name(path: Path, name: Path) -> None:
    """Let a file have one more name, in place of another file's, in one step. Raises FileError."""
    temporary = path.with_name(f".{name.name}.new")
    try:
        temporary.unlink(missing_ok=True)
        try:
            os.link(path, temporary)
        except OSError:  # a file system without such links
            return write_atomically(name, path.read_bytes())
        os.replace(temporary, name)
        temporary.unlink(missing_ok=True)  # it stays if both were names of one file
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise FileError(f"cannot write {name}", got=error.strerror or str(error), fix="Nothing was changed") from error


def remove_unfinished(path: Path) -> None:
    """Remove what a process that was killed while it wrote this file has left."""
    with contextlib.suppress(OSError):
        for left in path.parent.glob(f".{path.name}.*"):
            left.unlink()
