"""Who owns which part of the state vector: whole blocks, so that sums over blocks have one order.

Every parameter is cut into blocks by its size alone (`optim/layerwise.py`). A worker owns the same share of the blocks
of each part: of all parameters whose gradient comes from rows, and of every dense weight, whose blocks are the rows
that one product makes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..engine import Plan
from ..kernels import linear
from ..kernels.layerwise import BLOCK
from ..optim import Group
from ..optim.layerwise import Blocks


@dataclass(frozen=True)
class Segment:
    """A run of elements low … high of one owner and one group (None: of no group)."""

    low: int
    high: int
    group: Group | None


@dataclass(frozen=True)
class Shard:
    """One worker's part."""

    blocks: tuple[tuple[int, int], ...]  # runs of blocks (low, high)
    rows: tuple[int, int]  # elements whose gradients it folds
    products: dict[str, tuple[int, int]]  # of each dense weight, the rows it makes
    segments: tuple[Segment, ...]


def share(units: int, rank: int, workers: int) -> tuple[int, int]:
    """The part of `units` equal units that a worker owns."""
    return units * rank // workers, units * (rank + 1) // workers


def make_blocks(plan: Plan) -> Blocks:
    """All parameters of a plan in blocks, in the order of memory: those of rows first, then dense weights."""
    entries = _entries(plan)
    lengths = [BLOCK if e.part == "row" else linear.ROW_BLOCK * e.shape[1] for e in entries]
    return Blocks.of([(e.offset, e.size) for e in entries], lengths)


def _entries(plan: Plan):
    return sorted(plan.layout.parameters, key=lambda entry: entry.offset)


def make_shard(plan: Plan, blocks: Blocks, groups: Sequence[Group], rank: int, workers: int) -> Shard:
    """The part that worker `rank` of `workers` owns."""
    entries = _entries(plan)
    rows_end = sum(1 for entry in entries if entry.part == "row")
    low, high = share(int(blocks.starts[rows_end]), rank, workers)
    runs = [(low, high)]
    first = int(blocks.bounds[low, 0]) if high > low else 0
    last = int(blocks.bounds[high - 1, 1]) if high > low else 0
    products = {}
    for number in range(rows_end, len(entries)):
        start, end = int(blocks.starts[number]), int(blocks.starts[number + 1])
        low, high = (start + edge for edge in share(end - start, rank, workers))
        if high > low:
            runs.append((low, high))
            offset, outputs = entries[number].offset, entries[number].shape[1]
            edges = int(blocks.bounds[low, 0]), int(blocks.bounds[high - 1, 1])
            products[entries[number].name] = ((edges[0] - offset) // outputs, (edges[1] - offset) // outputs)
    segments: list[Segment] = []
    for begin, end, number in (blocks.bounds[b] for run in runs for b in range(*run)):
        entry = entries[int(number)]
        group = next((g for g in groups if g.matches(entry.name, entry.shape)), None)
        before = segments[-1] if segments else None
        # The gap between two entries is nobody's; a segment may run over it.
        if before is not None and before.group is group and begin - before.high < BLOCK and entry.part == "row":
            segments[-1] = Segment(before.low, int(end), group)
        else:
            segments.append(Segment(int(begin), int(end), group))
    return Shard(tuple(run for run in runs if run[1] > run[0]), (first, last), products, tuple(segments))
