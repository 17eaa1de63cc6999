"""Who is stuck: a worker that is stopped, or in an endless loop, ends no channel. It just makes no progress.

Every worker counts what it does (chunks, or kernels to compile) and its meetings with the others in shared memory,
`beats`. The parent looks some times a second. If one is stuck, the others soon wait for it at a meeting and do not go
on either, but they have come one meeting further. Time counts by looks, so that a parent that was itself stopped for an
hour does not blame its workers.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

# Columns of `beats`, counted since the job began.
CHUNKS, MEETINGS = 0, 1


class Watch:
    """Looks after the workers of one job."""

    def __init__(self, limit: float):
        """limit: seconds without progress that are too many."""
        self.limit = limit
        self._seen: dict[int, tuple[tuple | None, float]] = {}  # worker → its beats and the seconds since they changed

    def stuck(self, beats: np.ndarray, waiting_for: Iterable[int], seconds: float) -> list[int]:
        """Those of the workers waited for that have held the others up for too long; `seconds` since the last look.

        beats (workers, 2) int64.
        """
        silent = []
        workers = list(waiting_for)
        for worker in workers:
            now = tuple(beats[worker])
            before, silence = self._seen.get(worker, (None, 0.0))
            silence = silence + seconds if now == before else 0.0
            self._seen[worker] = now, silence
            if silence > self.limit:
                silent.append(worker)
        behind = min((beats[worker, MEETINGS] for worker in workers), default=0)
        return [worker for worker in silent if beats[worker, MEETINGS] == behind]
