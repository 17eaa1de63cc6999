"""A worker's shard: from all chunks' rows and panels to the next parameters, in place.

Every worker owns the same share of each part of the state vector (see `engine/layout.py`): columns of the rows, and
rows of every dense weight. For its own shard it folds the rows along the tree, makes the dense gradients, and updates,
while it alone touches these elements. Worker 0 also merges running statistics and metrics: some dozens of numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ..engine import Call, Plan
from ..kernels import linear, tree
from ..optim import Optimizer

GRAIN = 16  # elements: shards begin at whole cache lines


def share(units: int, rank: int, workers: int) -> tuple[int, int]:
    """The part of `units` equal units that a worker owns."""
    return units * rank // workers, units * (rank + 1) // workers


class ShardReducer:
    """One worker's part of the work between the two barriers of a step."""

    def __init__(self, plan: Plan, optimizer: Optimizer, arrays: dict[str, np.ndarray], rank: int, workers: int):
        layout = plan.layout
        self.optimizer = optimizer
        self.hyper = np.zeros(optimizer.hyper_size)
        gradient, rows, state, slots = arrays["gradient"], arrays["rows"], arrays["state"], arrays["slots"]
        low, high = (GRAIN * edge for edge in share(layout.row_end // GRAIN, rank, workers))
        self.fold = Call(tree.fold, rows, gradient, low, high)
        segments = [(low, high)] if high > low else []
        self.products: list[Call] = []
        spaces = {"panels": arrays["panels"]}
        by_name = {entry.name: entry for entry in layout.entries}
        for product in plan.products:
            entry = by_name[product.name]
            inputs, outputs = entry.shape
            blocks = -(-inputs // linear.ROW_BLOCK)
            first, last = (min(linear.ROW_BLOCK * edge, inputs) for edge in share(blocks, rank, workers))
            if last > first:
                dw = layout.get(gradient, entry)
                panels = product.x.array(spaces), product.dy.array(spaces)
                self.products.append(Call(product.operation, *panels, dw, first, last))
                segments.append((entry.offset + first * outputs, entry.offset + last * outputs))
        self.updates = [
            [self._update(segment, state, slots, gradient, copy) for segment in segments] for copy in (0, 1)
        ]
        self.merges: list[list[Call]] = [[], []]
        self.sum_metrics: list[Call] = []
        self.totals = arrays["totals"]
        if rank == 0:
            self.merges = [[self._merge(m, by_name, arrays, layout, copy) for m in plan.merges] for copy in (0, 1)]
            self.sum_metrics = [
                Call(tree.sum_in_order, arrays["metrics"], arrays["totals"][1 - copy]) for copy in (0, 1)
            ]

    def _update(self, segment: tuple[int, int], state: Any, slots: Any, gradient: Any, copy: int) -> tuple[int, Call]:
        low, high = segment
        kept = [slots[which, slot] for slot in range(slots.shape[1]) for which in (copy, 1 - copy)]
        call = Call(self.optimizer.operation, high, state[copy], state[1 - copy], gradient, *kept, self.hyper)
        return low, call

    @staticmethod
    def _merge(merge: Any, by_name: Any, arrays: Any, layout: Any, copy: int) -> Call:
        entries = [by_name[name] for name in merge.names]
        measured = [arrays["rows"][:, e.offset : e.offset + e.size] for e in entries]
        old = [layout.get(arrays["state"][copy], e) for e in entries]
        new = [layout.get(arrays["state"][1 - copy], e) for e in entries]
        return Call(merge.operation, *measured, arrays["counts"], *old, *new, *merge.args)

    def calls(self) -> Iterator[Call]:
        """All calls, to be linked before the first run."""
        yield self.fold
        yield from self.products
        for copy in (0, 1):
            yield from (call for _, call in self.updates[copy])
            yield from self.merges[copy]
        yield from self.sum_metrics

    def run(self, step: int, epoch: float, chunks: int, samples: int) -> None:
        """Reduce and update the shard after a batch of `samples` samples in `chunks` chunks."""
        copy = step & 1
        self.fold(chunks)
        for product in self.products:
            product(samples)
        self.optimizer.fill_hyper(self.hyper, step, epoch)
        for low, update in self.updates[copy]:
            update(low)
        for merge in self.merges[copy]:
            merge(chunks)
        if self.sum_metrics:
            self.totals[1 - copy] = self.totals[copy]
            self.sum_metrics[copy](chunks)
