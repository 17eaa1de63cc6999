"""What is said of workers that are lost, or that raise.

A cause is a line, such as "was killed by SIGKILL (…)"; the traceback of a crash may follow it after an empty line.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .. import errors
from ..errors import CorenetError, WorkerError
from .process import WorkerProcess


@dataclass(frozen=True)
class Recovery:
    """What was done about a worker that was lost: how many workers went on, and after how many seconds."""

    worker: int
    pid: int
    cores: tuple[int, ...]
    step: int  # steps that were complete by then
    cause: str  # with the traceback of a crash
    workers: int
    seconds: float

    def __str__(self) -> str:
        who = f"worker {self.worker} (pid {self.pid}, core {', '.join(map(str, self.cores))})"
        cause = self.cause.partition("\n")[0]
        return f"{who} {cause} at step {self.step}: {self.workers} in all went on after {self.seconds:.1f} s"


def nobody_left(member: WorkerProcess, cause: str, step: int) -> WorkerError:
    """The error when all workers are lost, of the last one: what became of it, and the traceback of its crash."""
    what, _, traceback = cause.partition("\n\n")
    fix = "The net is as it was before that step; fit goes on from there, with new workers"
    return WorkerError(f"{member.name} {what} at step {step}", fix=f"{fix}\n\n{traceback}" if traceback else fix)


def raised(member: WorkerProcess, event: dict[str, Any]) -> CorenetError:
    """An error of corenet as it was, about the user's own settings; all else with the worker's traceback."""
    kind = getattr(errors, event["kind"], None)
    if isinstance(kind, type) and issubclass(kind, CorenetError):
        return kind(event["message"])
    return WorkerError(f"worker {member.seat} raised {event['kind']}\n\n{event['traceback']}")
