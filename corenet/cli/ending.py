"""Every way a command can end, as its message and its exit code.

    0    done
    1    a defect: its traceback is shown
    2    wrong input: one line on standard error
    130  Ctrl-C
    141  nobody reads the output any more, as in `corenet info | head -1`
    143  SIGTERM

A command cleans up through `with` and `finally`: each of these reaches it as an exception.
"""

import contextlib
import errno
import os
import signal
import sys
from typing import Any, NoReturn, TextIO

from ..errors import CorenetError

WRONG_INPUT, INTERRUPTED, PIPE_CLOSED, TERMINATED = 2, 130, 141, 143


class Terminated(BaseException):
    """SIGTERM has come; no Exception, like KeyboardInterrupt."""


def run(arguments: list[str]) -> int:
    """Run a command; its exit code."""
    try:
        signal.signal(signal.SIGTERM, _terminate)
        _tolerate_any_text()
        code = _run_command(arguments)
        if sys.stdout is not None:
            sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        _say("interrupted")
        return INTERRUPTED
    except Terminated:
        _say("terminated")
        return TERMINATED
    except BrokenPipeError:
        _discard(sys.stdout)
        _discard(sys.stderr)
        return PIPE_CLOSED
    except CorenetError as error:
        _say(f"error: {error}")
        return WRONG_INPUT
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        _say(f"error: cannot write the output: {error.strerror}")
        return WRONG_INPUT


def _run_command(arguments: list[str]) -> int:
    import typer

    from .app import command

    usage_error: Any = typer.BadParameter.__mro__[1]  # Click's UsageError, wherever this Typer keeps it
    try:
        with command().make_context("corenet", arguments) as context:
            context.command.invoke(context)
    except typer.Exit as end:
        return end.exit_code
    except usage_error as error:
        asked = getattr(error, "ctx", None)
        path = asked.command_path if asked else "corenet"
        message = error.format_message().strip()
        stop = "" if message.endswith((".", "?", "!")) else "."
        raise CorenetError(f"{message}{stop} See {path} --help") from None
    return 0


def _terminate(*_: object) -> NoReturn:
    raise Terminated


def _tolerate_any_text() -> None:
    """Print "?" for what a stream's encoding lacks, such as × on an ASCII terminal."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


def _say(text: str) -> None:
    """Print the last words, after all that was said before."""
    for stream, line in ((sys.stdout, ""), (sys.stderr, f"{text}\n")):
        try:
            if stream is not None:
                stream.write(line)
                stream.flush()
        except OSError:
            _discard(stream)


def _discard(stream: TextIO | None) -> None:
    """Send what is still buffered nowhere, or Python would complain about it at exit."""
    with contextlib.suppress(AttributeError, OSError, ValueError):  # there may be no such stream
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())  # type: ignore[union-attr]
        os.close(nowhere)
