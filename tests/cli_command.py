"""The real command in a process of its own, and a terminal for it."""

import contextlib
import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

COMMAND = [sys.executable, "-W", "error", "-m", "corenet"]
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\x9b]")  # all but tab and newline
LIMIT = 240  # seconds after which a command hangs

# Imported by every Python process before anything else: the modules named in BLOCK are not installed.
_BLOCKER = """
import os, sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in os.environ["BLOCK"].split(","):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Blocker())
"""


def environment(**changes: str) -> dict[str, str]:
    """This process's environment without what would change the output."""
    plain = {k: v for k, v in os.environ.items() if k not in ("FORCE_COLOR", "NO_COLOR", "COLUMNS", "PYTHONUNBUFFERED")}
    return {**plain, **changes}


def importing_from(folder: Path, **changes: str) -> dict[str, str]:
    """An environment in which modules are looked for in this folder first."""
    path = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    return environment(PYTHONPATH=path, **changes)


def without(folder: Path, *modules: str) -> dict[str, str]:
    """An environment in which these modules cannot be imported."""
    (folder / "sitecustomize.py").write_text(_BLOCKER)
    return importing_from(folder, BLOCK=",".join(modules))


def corenet(*arguments: object, cwd: Path, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return subprocess.run(
        [*COMMAND, *map(str, arguments)],
        cwd=cwd,
        env=env or environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )


def succeed(*arguments: object, cwd: Path, env: dict[str, str] | None = None) -> str:
    """What a command prints that must succeed."""
    done = corenet(*arguments, cwd=cwd, env=env)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout


def fail(*arguments: object, cwd: Path, env: dict[str, str] | None = None) -> str:
    """The one line that a command must say about wrong input."""
    done = corenet(*arguments, cwd=cwd, env=env)
    assert done.returncode == 2, (done.returncode, done.stdout, done.stderr)
    assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1, done.stderr
    assert done.stdout == ""
    return done.stderr.strip()


def heed_ctrl_c() -> None:
    """Undo what a shell does to a job in the background, as the test run may be: its children inherit deaf ears."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Running:
    """A command that is under way, and its children; ends with the `with` block at the latest."""

    def __init__(self, *arguments: object, cwd: Path, command: Sequence[str] = COMMAND):
        self.process = subprocess.Popen(
            [*command, *map(str, arguments)], cwd=cwd, env=environment(), stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=heed_ctrl_c,
        )  # fmt: skip

    def __enter__(self) -> "Running":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        for pipe in (self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()
        self.process.wait()

    def wait_for(self, start: str) -> list[psutil.Process]:
        """Read output up to a line that starts so; the children there are then."""
        assert self.process.stdout is not None
        if not any(line.startswith(start) for line in self.process.stdout):
            raise AssertionError(f"no line {start!r}, but {self.end()}")
        return psutil.Process(self.process.pid).children(recursive=True)

    def end(self) -> tuple[int, str]:
        """Exit code and what it wrote to standard error."""
        err = self.process.communicate(timeout=LIMIT)[1]
        return self.process.returncode, err


def survivors(processes: list[psutil.Process], within: float = 5) -> list[psutil.Process]:
    """Those that still run after that many seconds."""
    _, alive = psutil.wait_procs(processes, timeout=within)
    return [process for process in alive if process.status() != psutil.STATUS_ZOMBIE]


class Terminal:
    """A command on a terminal of its own: what it wrote, its exit code, the terminal's modes before and after.

    Ctrl-C is typed when `type_after` has been written.
    """

    def __init__(self, *arguments: object, cwd: Path, type_after: str | None = None, term: str = "xterm-256color"):
        master, slave = pty.openpty()
        self.before = termios.tcgetattr(slave)
        env = environment(TERM=term, COLUMNS="100", LINES="40")
        own = "fcntl.ioctl(0, termios.TIOCSCTTY, 0)"  # Ctrl-C reaches whom the terminal controls
        code = f"import fcntl, os, sys, termios; {own}; os.execv(sys.executable, sys.argv[1:])"
        command = [sys.executable, "-c", code, *COMMAND, *map(str, arguments)]
        process = subprocess.Popen(
            command, cwd=cwd, env=env, stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
            preexec_fn=heed_ctrl_c,
        )  # fmt: skip
        written = b""
        deadline = time.monotonic() + LIMIT
        while time.monotonic() < deadline:
            if select.select([master], [], [], 0.05)[0]:
                with contextlib.suppress(OSError):
                    written += os.read(master, 65536)
            elif process.poll() is not None:
                break
            if type_after is not None and type_after.encode() in written:
                os.write(master, b"\x03")  # Ctrl-C
                type_after = None
        self.text = written.decode()
        self.after = termios.tcgetattr(slave)
        process.kill()
        self.code = process.wait()
        os.close(master)
        os.close(slave)

    def screens(self) -> list[list[str]]:
        """The lines on the screen after each piece of output: a terminal of unlimited height, without colours."""
        lines, row, screens = [""], 0, []
        column = 0
        for piece in re.findall(r"\x1b\[[0-9;?]*[A-Za-z]|\r|\n|[^\x1b\r\n]+", self.text):
            if piece == "\n":
                row += 1
                lines += [""] * (row + 1 - len(lines))
            elif piece == "\r":
                column = 0
            elif piece.endswith("A"):
                row -= int(piece[2:-1])
            elif piece == "\x1b[2K":
                lines[row] = ""
            elif piece.startswith("\x1b"):
                assert piece.endswith("m"), f"unknown control sequence {piece!r}"
            else:
                lines[row] = lines[row][:column].ljust(column) + piece + lines[row][column + len(piece) :]
                column += len(piece)
            screens.append(list(lines))
        return screens
