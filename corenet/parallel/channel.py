"""The line between the parent and one worker: messages that JSON can carry, with file descriptors attached.

    parent ── Channel ══════ a pair of Unix sockets ══════ Channel ── worker

    a message on the wire:   | length, 8 bytes | descriptors, 4 bytes | JSON in UTF-8 ... |
                               └─ the kernel attaches the descriptors here, and the receiver gets its own numbers

The socket also tells when the other side is gone: `receive` raises EOFError, and anything that waits for `fileno`
wakes up. Both sides may not send large messages at once, since each would wait for the other to read: ask and answer.
"""

import contextlib
import json
import os
import socket
import struct
from collections.abc import Iterator, Sequence
from typing import Any

from ..errors import ConfigError, WorkerError

HEADER = struct.Struct("!QI")  # bytes of JSON that follow, descriptors attached
MAX_FDS = 250  # Linux takes 253 in one message
GONE = "the other end of the channel is gone"
_CLOSE_ON_EXEC = getattr(socket, "MSG_CMSG_CLOEXEC", 0)


class Channel:
    """One end of the line; it owns its socket."""

    def __init__(self, end: socket.socket | int):
        self._socket = socket.socket(fileno=end) if isinstance(end, int) else end
        self._socket.setblocking(True)

    @classmethod
    def pair(cls) -> "tuple[Channel, Channel]":
        """Both ends of a new line."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        return cls(ours), cls(theirs)

    def send(self, message: dict[str, Any], fds: Sequence[int] = ()) -> None:
        """Send a message and copies of file descriptors; EOFError if the other end is gone."""
        if len(fds) > MAX_FDS:
            raise ConfigError("file descriptors in one message", expected=f"at most {MAX_FDS}", got=len(fds))
        body = json.dumps(message).encode()  # before anything is sent: it may fail
        header = HEADER.pack(len(body), len(fds))
        with _eof():
            sent = socket.send_fds(self._socket, [header], list(fds)) if fds else 0
            self._socket.sendall(header[sent:] + body)

    def receive(self) -> tuple[dict[str, Any], list[int]]:
        """The next message and the descriptors that came with it, which are the caller's to close.

        Raises EOFError if the other end is gone, WorkerError if this process can hold no more open files.
        """
        with _eof():
            # The kernel hands the descriptors over with the first byte they were sent with.
            start, fds, _, _ = socket.recv_fds(self._socket, HEADER.size, MAX_FDS, _CLOSE_ON_EXEC)
            try:
                length, count = HEADER.unpack(start + self._read(HEADER.size - len(start)))
                message = json.loads(self._read(length))
                if len(fds) != count:  # the kernel drops those for which this process has no room
                    raise WorkerError(
                        "a message between parent and worker",
                        expected=f"{count} file descriptors",
                        got=len(fds),
                        fix="Raise the limit on open files (ulimit -n)",
                    )
                for fd in fds:
                    os.set_inheritable(fd, False)
            except BaseException:
                for fd in fds:
                    os.close(fd)
                raise
            return message, fds

    def fileno(self) -> int:
        """The socket's descriptor, to wait for it together with others."""
        return self._socket.fileno()

    def close(self) -> None:
        """Give this end up; the line ends when no process holds a copy of it any more."""
        self._socket.close()

    def hang_up(self) -> None:
        """End the line now, even if this process has been forked and the copy holds this end, too."""
        with contextlib.suppress(OSError):  # the other side was first, or it is closed already
            self._socket.shutdown(socket.SHUT_RDWR)
        self.close()

    def __enter__(self) -> "Channel":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _read(self, count: int) -> bytes:
        """Exactly `count` bytes, in as many pieces as they come."""
        data = bytearray(count)
        view = memoryview(data)
        while view:
            got = self._socket.recv_into(view)
            if not got:
                raise EOFError(GONE)
            view = view[got:]
        return bytes(data)


@contextlib.contextmanager
def _eof() -> Iterator[None]:
    """A broken pipe and a reset connection mean the same here as the end of the stream."""
    try:
        yield
    except ConnectionError:
        raise EOFError(GONE) from None
