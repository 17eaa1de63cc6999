"""What a file's header claims, against what the file can hold: looked at before any of it is kept.

A file is not trusted. Its header only *claims* a size, which may be that of all memory, and a packed file may hold a
thousand times its size. So what is unpacked is compared with what deflate can pack, with what real images pack to, and
with the memory that is free: a file may be all holes, and take no space on the disk.
"""

from pathlib import Path

import psutil

from ..errors import FileError

MAX_DEFLATE = 1032  # deflate cannot pack better than 1032 : 1, so a larger claim is refuted by the file's size
# Images pack 2 to 50 : 1. Beyond this, a file that unpacks to a lot was made to fill memory.
BOMB_RATIO, BOMB_BYTES = 200, 64 << 20

AGAIN = "Fetch the file again: it is truncated or damaged."


def check_unpacked(path: Path, claim: str, size: int, packed: int) -> None:
    """Raise FileError if `packed` bytes cannot, or should not, unpack to the `size` bytes of a claim."""
    if size > MAX_DEFLATE * packed:
        expected = f"{size:,} bytes ({claim}, from its header)"
        raise FileError(str(path), expected=expected, got=f"{packed:,} packed bytes, which hold less", fix=AGAIN)
    if size > max(BOMB_BYTES, BOMB_RATIO * packed):
        expected = f"at most {BOMB_RATIO} times its {packed:,} bytes"
        fix = "This looks like a decompression bomb. If you made it, unpack it first."
        raise FileError(str(path), expected=expected, got=f"{size:,} bytes ({claim}) unpacked", fix=fix)
    check_memory(path, claim, size)


def check_memory(path: Path, claim: str, size: int) -> None:
    """Raise FileError if `size` bytes are more than the memory that is free."""
    free = psutil.virtual_memory().available
    if size > free:
        expected = f"at most the {free:,} bytes of memory that are free"
        raise FileError(
            str(path), expected=expected, got=f"{size:,} bytes ({claim})", fix="Make it smaller, or cut it up."
        )


def is_page(head: bytes) -> bool:
    """Whether a file that begins so is a web page in place of data."""
    return head.lstrip().lower().startswith((b"<!doctype", b"<html", b"<head", b"<?xml"))


def wrong_kind(path: Path, wanted: str, head: bytes, beginning: str = "") -> FileError:
    """The error of a file that begins with other bytes than such files do, or as `beginning` says."""
    if not head:
        return FileError(str(path), expected=wanted, got="an empty file", fix=AGAIN)
    if is_page(head):
        fix = "The download got an error page or a page about the file; fetch the file itself."
        return FileError(str(path), expected=wanted, got="a web page (HTML)", fix=fix)
    return FileError(str(path), expected=wanted + beginning, got=f"first bytes {head[:4].hex(' ')}")


def regular_file(path: Path, wanted: str) -> int:
    """The size of a file. Raises FileError for what is none: a pipe would wait, a device never end."""
    try:
        if path.is_file():
            return path.stat().st_size
        got = "a folder" if path.is_dir() else "neither a file nor a folder" if path.exists() else "no such file"
    except (OSError, ValueError) as error:  # no permission; a NUL in the name
        got = f"'{error}'"
    raise FileError(str(path), expected=wanted, got=got)
