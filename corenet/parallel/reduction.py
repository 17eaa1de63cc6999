"""A worker's shard: from all chunks' rows and panels to the next parameters, in place.

    phase 1   fold the rows along the tree, make the dense gradients, cut elements
    phase …   where norms are needed (clip_norm, LARS, LAMB): sums of squares of the own blocks ── barrier ── use them
    last      update; keep the average of the weights

For its own shard (`shards.py`) a worker does all this while it alone touches these elements. Worker 0 also merges
running statistics and metrics: some dozens of numbers. Between two phases all workers meet; usually there is one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ..engine import Call, Plan
from ..kernels import gradient as gradients
from ..kernels import layerwise, tree
from ..kernels.losses import LOSS
from ..optim import Optimizer
from ..optim.layerwise import LayerwiseOptimizer
from .shards import make_blocks, make_shard

Phase = list[tuple[int, Call]]  # first argument and call


class ShardReducer:
    """One worker's part of the work at the end of a step."""

    def __init__(self, plan: Plan, optimizer: Optimizer, arrays: dict[str, np.ndarray], rank: int, workers: int):
        self.optimizer, self.rank = optimizer, rank
        self.arrays, self.layout = arrays, plan.layout
        self.blocks = make_blocks(plan)
        self.shard = make_shard(plan, self.blocks, optimizer.common.groups, rank, workers)
        self.optimizers: list[tuple[Optimizer, np.ndarray]] = []  # with their numbers, filled in at every step
        self.products = self._products(plan)
        self.fold = Call(tree.fold, arrays["rows"], arrays["gradient"], *self.shard.rows)
        self.gradients = [arrays["gradient"][s.low : s.high] for s in self.shard.segments]
        self.totals = arrays["totals"]
        self.merges: list[list[Call]] = [[], []]
        self.sum_metrics: list[Call] = []
        if rank == 0:
            self.merges = [[self._merge(merge, copy) for merge in plan.merges] for copy in (0, 1)]
            self.sum_metrics = [Call(tree.sum_in_order, arrays["metrics"], self.totals[1 - copy]) for copy in (0, 1)]
        self._phases = [self._make_phases(copy) for copy in (0, 1)]
        self.phase_count = len(self._phases[0])

    def _products(self, plan: Plan) -> list[Call]:
        entries = {entry.name: entry for entry in self.layout.entries}
        calls = []
        for product in plan.products:
            if product.name in self.shard.products:
                dw = self.layout.get(self.arrays["gradient"], entries[product.name])
                panels = [panel.array({"panels": self.arrays["panels"]}) for panel in (product.x, product.dy)]
                calls.append(Call(product.operation, *panels, dw, *self.shard.products[product.name]))
        return calls

    def _merge(self, merge: Any, copy: int) -> Call:
        by_name = {entry.name: entry for entry in self.layout.entries}
        entries = [by_name[name] for name in merge.names]
        measured = [self.arrays["rows"][:, e.offset : e.offset + e.size] for e in entries]
        old = [self.layout.get(self.arrays["state"][copy], e) for e in entries]
        new = [self.layout.get(self.arrays["state"][1 - copy], e) for e in entries]
        return Call(merge.operation, *measured, self.arrays["counts"], *old, *new, *merge.args)

    def _make_phases(self, copy: int) -> list[Phase]:
        """What follows the gradient, from one copy of the state to the other; all workers meet between phases."""
        common, gradient, runs = self.optimizer.common, self.arrays["gradient"], self.shard.blocks
        old, new, sums = self.arrays["state"][copy], self.arrays["state"][1 - copy], self.arrays["sums"][0]
        segments = self.shard.segments
        phases: list[Phase] = [[]]
        if common.clip_value is not None:
            phases[-1] += [(s.low, Call(gradients.clip, s.high, gradient, common.clip_value)) for s in segments]
        if common.clip_norm is not None:
            bounds = self.blocks.bounds
            phases[-1] += [
                (low, Call(layerwise.partial_norms, high, bounds, old, gradient, sums)) for low, high in runs
            ]
            factor = np.ones(1)
            phases.append([(len(bounds), Call(gradients.clip_factor, sums, factor, common.clip_norm))])
            phases[-1] += [(s.low, Call(gradients.scale, s.high, gradient, factor)) for s in segments]
        slots = self.arrays["slots"]
        kept = [slots[which, slot] for slot in range(slots.shape[1]) for which in (copy, 1 - copy)]
        if isinstance(self.optimizer, LayerwiseOptimizer):
            self._layerwise(self.optimizer, phases, old, new, kept)
        else:
            for s in segments:
                optimizer = self.optimizer.of_group(s.group)
                hyper = np.zeros(optimizer.hyper_size)
                self.optimizers.append((optimizer, hyper))
                phases[-1].append((s.low, Call(optimizer.operation, s.high, old, new, gradient, *kept, hyper)))
        if common.ema is not None:
            averages = self.arrays["average"][copy], self.arrays["average"][1 - copy]
            phases[-1] += [(s.low, Call(gradients.average, s.high, new, *averages, common.ema)) for s in segments]
        return phases

    def _layerwise(self, optimizer: LayerwiseOptimizer, phases: list[Phase], old: Any, new: Any, kept: Any) -> None:
        entries = sorted(self.layout.parameters, key=lambda entry: entry.offset)
        trust = optimizer.trust(self.blocks, self.arrays["sums"][1])
        for number, entry in enumerate(entries):
            group = next((g for g in optimizer.common.groups if g.matches(entry.name, entry.shape)), None)
            if group is not None and group.weight_decay is not None:
                trust.decays[number] = group.weight_decay
        self.optimizers.append((optimizer, trust.hyper))
        measure, ratios, update = ([], [], [])  # type: tuple[Phase, Phase, Phase]
        for low, high in self.shard.blocks:
            steps = optimizer.passes(high, self.blocks, old, new, self.arrays["gradient"], kept, trust)
            measure.append((low, Call(steps[0][0], *steps[0][1])))
            ratios = [(len(entries), Call(steps[1][0], *steps[1][1]))]
            update.append((low, Call(steps[2][0], *steps[2][1])))
        phases[-1] += measure
        phases.append(ratios + update)

    def calls(self) -> Iterator[Call]:
        """All calls, to be linked before the first run."""
        yield self.fold
        yield from self.products
        for copy in (0, 1):
            yield from self.merges[copy]
            yield from (call for phase in self._phases[copy] for _, call in phase)
        yield from self.sum_metrics

    def run(self, step: int, rate: float, chunks: int, samples: int, meet: Callable[[], None]) -> bool:
        """Reduce and update the shard after a batch of `samples` samples in `chunks` chunks; `meet` is the barrier.

        Whether the shard's gradient, and of worker 0 the loss, is finite.
        """
        copy = step & 1
        if self.shard.rows[1] > self.shard.rows[0]:
            self.fold(chunks)
        for product in self.products:
            product(samples)
        finite = all(_finite(part) for part in self.gradients)
        if self.sum_metrics:
            self.totals[1 - copy] = self.totals[copy]
            self.sum_metrics[copy](chunks)
            finite = finite and bool(np.isfinite(self.totals[1 - copy, LOSS]))
        for merge in self.merges[copy]:
            merge(chunks)
        if self.rank == 0 and self.optimizer.common.ema is not None:  # the averages predict with the same statistics
            part = slice(self.layout.row_end, self.layout.stat_end)
            self.arrays["average"][1 - copy, part] = self.arrays["state"][1 - copy, part]
        for optimizer, hyper in self.optimizers:
            optimizer.fill_hyper(hyper, step, rate * optimizer.lr_scale)
        for number, phase in enumerate(self._phases[copy]):
            if number:
                meet()
            for first, call in phase:
                call(first)
        return finite

    def undo(self, step: int) -> None:
        """Let a step have been without effect: the next one begins from what this one began from."""
        old, new = step & 1, 1 - (step & 1)
        parts = [slice(s.low, s.high) for s in self.shard.segments]
        if self.rank == 0:
            parts.append(slice(self.layout.row_end, self.layout.stat_end))
            self.totals[new] = self.totals[old]
        for name in ("state", "slots", "average"):
            copies = self.arrays[name]
            for part in parts:
                copies[new, ..., part] = copies[old, ..., part]


def _finite(values: np.ndarray) -> bool:
    """Whether all are; a sum of squares says so in a fraction of the time, unless it overflows."""
    return bool(np.isfinite(values @ values) or np.isfinite(values).all())
