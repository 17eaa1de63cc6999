"""Where all chunks of a batch meet in the middle of the net: what every worker makes from everybody's rows.

Between two barriers all workers read the same columns of the same rows and make the same numbers in the same order,
each for itself, so nothing has to be sent around.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..engine import Call, Plan
from ..engine.buffer import Buffer


class Meetings:
    """One worker's calls at the meeting places of a plan."""

    def __init__(self, plan: Plan, rows: np.ndarray, counts: np.ndarray, common: np.ndarray):
        self.rows = rows
        self._calls: list[Call] = []
        self._parts: list[list[slice]] = []  # what a row has at each meeting place, and all else at the end
        for meet in plan.meets:
            places = [_columns(buffer) for buffer in meet.columns]
            columns = [rows[:, place] for place in places]
            results = [buffer.array({"common": common}) for buffer in meet.results]
            self._calls.append(Call(meet.operation, *columns, counts, *results, *meet.args))
            self._parts.append(places)
        taken = sorted((place.start, place.stop) for places in self._parts for place in places)
        gaps = zip([0, *(stop for _, stop in taken)], [*(start for start, _ in taken), plan.row_size], strict=True)
        self._parts.append([slice(start, stop) for start, stop in gaps])

    def __len__(self) -> int:
        return len(self._calls)

    def calls(self) -> Iterator[Call]:
        """All calls, to be linked before the first run."""
        return iter(self._calls)

    def share(self, part: int, chunk: int, row: np.ndarray) -> None:
        """Put what is due after this part into the chunk's shared row, where others may be reading the rest."""
        for place in self._parts[part]:
            self.rows[chunk, place] = row[place]

    def combine(self, place: int, chunks: int) -> None:
        """Make the results of one meeting place from the rows of a batch's chunks."""
        self._calls[place](chunks)


def _columns(buffer: Buffer) -> slice:
    """Where a buffer lies in a row, in elements."""
    first, size = buffer.root.offset // buffer.dtype.itemsize, buffer.nbytes // buffer.dtype.itemsize
    return slice(first, first + size)
