"""The memory that workers share, and who touches what.

    segment   array        shape (t: step)              written by                      read by
    control   barrier      (words,)                     all, atomically                 all
              status       (STATUS,) int64              worker 0, between barriers      parent, all
              times        (workers, 3) float64         worker w its row                parent
              beats        (workers, 2) int64           worker w its row                parent
    state     state        (2, size)                    shard owners → [(t+1) & 1]      all ← [t & 1]
              slots        (2, slots, size)             shard owners → [(t+1) & 1]      shard owners ← [t & 1]
              average      (2, size), or empty          shard owners → [(t+1) & 1]      all, predicting
              gradient     (size,)                      shard owners                    shard owners
              sums         (2, blocks, 2) float64       block owners, in a phase        all, in the next phase
    batch     rows         (chunks, row size)           who computed the chunk          shard owners; all, in meetings
              counts       (chunks,) int64              who computed the chunk          worker 0; all, in meetings
              metrics      (chunks, 4) float64          who computed the chunk          worker 0
              totals       (2, 4) float64               worker 0 → [(t+1) & 1]          parent
              panels       batch-wide x and dy          who computed the chunk          shard owners
    data      x, y         the data set, once           parent, before training         all
              weights      (n,) float64, of the loss    parent, before training         all
              order        (n,) int64                   parent, between epochs          all
              rates        (n,) float64, one per step   parent, between epochs          all
              skipped      (n,) bool, one per step      worker 0, between barriers      parent
    output    output       (n, outputs)                 who computed the chunk          parent, afterwards

Between two barriers no element is written by one worker and touched by another. State, slots and totals alternate
between two copies, so a step that was interrupted anywhere can be done again from what it began with.
"""

from __future__ import annotations

from typing import Any

from ..engine import Plan
from ..kernels.losses import METRICS
from ..optim import Optimizer
from .barrier import AtomicBarrier
from .shards import make_blocks

# Places in `status`.
STEP, FAILED_STEP = 0, 1  # steps done in the whole run; the first step whose loss or gradient was not finite, or −1
STATUS = 8
# Columns of `times`, in seconds since the job began.
COMPUTE, WAIT, SAMPLES = 0, 1, 2

Fields = dict[str, tuple[tuple[int, ...], Any]]


def control_fields(workers: int) -> Fields:
    """Barrier, progress, timing, and signs of life."""
    return {
        "barrier": ((AtomicBarrier.WORDS,), "uint32"),
        "status": ((STATUS,), "int64"),
        "times": ((workers, 3), "float64"),
        "beats": ((workers, 2), "int64"),
    }


def state_fields(plan: Plan, optimizer: Optimizer) -> Fields:
    """Parameters, running statistics and the optimizer's numbers, twice; the batch's gradient and its blocks' norms."""
    size, dtype = plan.layout.size, plan.layout.dtype.str
    return {
        "state": ((2, size), dtype),
        "slots": ((2, optimizer.slots, size), dtype),
        "average": ((2, size if optimizer.common.ema is not None else 0), dtype),
        "gradient": ((size,), dtype),
        "sums": ((2, len(make_blocks(plan).bounds), 2), "float64"),
    }


def batch_fields(plan: Plan) -> Fields:
    """What the chunks of a batch leave behind."""
    return {
        "rows": ((plan.chunks, plan.row_size), plan.layout.dtype.str),
        "counts": ((plan.chunks,), "int64"),
        "metrics": ((plan.chunks, METRICS), "float64"),
        "totals": ((2, METRICS), "float64"),
        "panels": ((plan.bytes["panels"],), "uint8"),
    }


def data_fields(x_shape: tuple[int, ...], x_dtype: Any, elements: int = 0, y_dtype: Any = "int64") -> Fields:
    """A data set, with so many labels or values for each sample, and what each sample counts."""
    n = x_shape[0]
    return {
        "x": (x_shape, x_dtype),
        "y": ((n, elements), y_dtype),
        "weights": ((n,), "float64"),
        "order": ((n,), "int64"),
        "rates": ((n,), "float64"),
        "skipped": ((n,), "bool"),
    }
