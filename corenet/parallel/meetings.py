"""Where all chunks of a batch meet in the middle of the net: what every worker makes from everybody's rows.

Between two barriers all workers read the same columns of the same rows and make the same numbers in the same order,
each for itself, so nothing has to be sent around.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..engine import Call, Plan


class Meetings:
    """One worker's calls at the meeting places of a plan."""

    def __init__(self, plan: Plan, rows: np.ndarray, counts: np.ndarray, common: np.ndarray):
        self._calls = []
        for meet in plan.meets:
            columns = []
            for buffer in meet.columns:
                first = buffer.root.offset // buffer.dtype.itemsize
                columns.append(rows[:, first : first + buffer.nbytes // buffer.dtype.itemsize])
            results = [buffer.array({"common": common}) for buffer in meet.results]
            self._calls.append(Call(meet.operation, *columns, counts, *results, *meet.args))

    def __len__(self) -> int:
        return len(self._calls)

    def calls(self) -> Iterator[Call]:
        """All calls, to be linked before the first run."""
        return iter(self._calls)

    def combine(self, place: int, chunks: int) -> None:
        """Make the results of one meeting place from the rows of a batch's chunks."""
        self._calls[place](chunks)
