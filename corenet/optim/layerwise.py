"""LARS and LAMB: each parameter's step is scaled by a trust ratio of norms, so a step has two passes.

They are not elementwise: between the passes the sums of squares of every parameter must be there, all of them. Work
is dealt in blocks, see `kernels/layerwise.py`; `layerwise_step` shows the order of things and is their definition.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import ConfigError
from ..kernels import layerwise
from ..kernels.backend import Backend
from ..kernels.operation import Operation
from .adam import check_betas
from .optimizer import Optimizer
from .schedule import Schedule, positive

Pass = tuple[Operation, tuple]  # an operation and its arguments after `low`, ready to be bound


@dataclass(frozen=True)
class Blocks:
    """How parameter arrays of a flat vector are cut into blocks: by their sizes alone, never by who owns what."""

    bounds: np.ndarray  # (blocks, 3) int64: first element, last + 1, entry
    starts: np.ndarray  # (entries + 1,) int64: an entry's first block, and the number of all blocks

    @staticmethod
    def of(entries: Sequence[tuple[int, int]], block: int | Sequence[int] = layerwise.BLOCK) -> Blocks:
        """Cut (offset, size) entries into blocks of `block` elements: one number, or one for each entry."""
        lengths = [block] * len(entries) if isinstance(block, int) else list(block)
        bounds, starts = [], [0]
        for number, ((offset, size), length) in enumerate(zip(entries, lengths, strict=True)):
            for first in range(offset, offset + size, length):
                bounds.append((first, min(first + length, offset + size), number))
            starts.append(len(bounds))
        return Blocks(np.array(bounds, np.int64).reshape(-1, 3), np.array(starts, np.int64))


@dataclass(frozen=True)
class Trust:
    """What the passes share, apart from parameters and slots: every array is float64."""

    sums: np.ndarray  # (blocks, 2): pass 1 writes its owner's blocks
    ratios: np.ndarray  # (entries,): everybody makes the same from the sums
    decays: np.ndarray  # (entries,): weight decay; 0 leaves an entry, a bias perhaps, without
    coefficients: np.ndarray  # (entries,): of the trust ratio; 0: the entry's ratio is always 1
    hyper: np.ndarray


class LayerwiseOptimizer(Optimizer):
    """Base of optimizers that need the norms of whole parameters; `operation` is the second pass."""

    weight_decay: float
    trust_coefficient: float

    def __init__(self, lr: float | Schedule, common: dict[str, Any]):
        super().__init__(lr, common)
        if any(group.lr_scale != 1 for group in self.common.groups):
            fix = "Its rates follow the norms; give weight_decay only"
            raise ConfigError(f"{type(self).__name__}(groups=…)", expected="lr_scale 1", got="another", fix=fix)

    def trust(self, blocks: Blocks, sums: np.ndarray | None = None) -> Trust:
        """Arrays for these blocks, with the same decay and coefficient for all entries; sums may be shared ones."""
        count, entries = len(blocks.bounds), len(blocks.starts) - 1
        decays, coefficients = np.full(entries, self.weight_decay), np.full(entries, self.trust_coefficient)
        sums = np.zeros((count, 2)) if sums is None else sums
        return Trust(sums, np.ones(entries), decays, coefficients, np.zeros(self.hyper_size))

    @abstractmethod
    def passes(
        self, high: int, blocks: Blocks, old: Any, new: Any, gradient: Any, kept: Sequence[Any], trust: Trust
    ) -> tuple[Pass, Pass, Pass]:
        """Measure the blocks up to `high`; make all ratios, called with the number of entries; update the blocks.

        kept: the old and the new array of each slot, one after the other.
        """


class LARS(LayerwiseOptimizer):
    """Layerwise adaptive rate scaling (You, Gitman & Ginsburg 2017): SGD with momentum for large batches.

    ratio = trust_coefficient · ‖w‖ / (‖g‖ + weight_decay · ‖w‖ + eps) for each parameter, 1 where a norm is 0.
    """

    slots = 1
    operation = layerwise.lars
    hyper_size = 2

    def __init__(
        self, lr: float | Schedule, momentum: float = 0.9, weight_decay: float = 0.0,
        trust_coefficient: float = 0.001, eps: float = 0.0, **common: Any,
    ):  # fmt: skip
        super().__init__(lr, common)
        self.momentum = positive("LARS", "momentum", momentum, zero=True)
        self.weight_decay = positive("LARS", "weight_decay", weight_decay, zero=True)
        self.trust_coefficient = positive("LARS", "trust_coefficient", trust_coefficient)
        self.eps = positive("LARS", "eps", eps, zero=True)

    def fill_hyper(self, hyper: np.ndarray, step: int, rate: float) -> None:
        hyper[0], hyper[1] = rate, self.momentum

    def passes(
        self, high: int, blocks: Blocks, old: Any, new: Any, gradient: Any, kept: Sequence[Any], trust: Trust
    ) -> tuple[Pass, Pass, Pass]:
        entry = trust.decays, trust.coefficients, trust.ratios
        after = trust.decays, trust.ratios, trust.hyper
        return (
            (layerwise.partial_norms, (high, blocks.bounds, old, gradient, trust.sums)),
            (layerwise.trust_ratios, (blocks.starts, trust.sums, *entry, self.eps)),
            (layerwise.lars, (high, blocks.bounds, old, new, gradient, *kept, *after)),
        )


class LAMB(LayerwiseOptimizer):
    """Adam's direction with decoupled decay, scaled to ‖w‖ for each parameter (You et al. 2020), for large batches.

    ratio = ‖w‖ / ‖direction + weight_decay · w‖, 1 where a norm is 0.
    """

    slots = 2
    operation = layerwise.lamb
    hyper_size = 6
    trust_coefficient = 1.0

    def __init__(
        self, lr: float | Schedule = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-6,
        weight_decay: float = 1e-2, **common: Any,
    ):  # fmt: skip
        super().__init__(lr, common)
        self.betas = check_betas("LAMB", betas)
        self.eps = positive("LAMB", "eps", eps)
        self.weight_decay = positive("LAMB", "weight_decay", weight_decay, zero=True)

    def fill_hyper(self, hyper: np.ndarray, step: int, rate: float) -> None:
        hyper[0], hyper[1], hyper[2], hyper[3] = rate, *self.betas, self.eps
        hyper[4], hyper[5] = 1 - self.betas[0] ** (step + 1), 1 - self.betas[1] ** (step + 1)

    def passes(
        self, high: int, blocks: Blocks, old: Any, new: Any, gradient: Any, kept: Sequence[Any], trust: Trust
    ) -> tuple[Pass, Pass, Pass]:
        entry = np.zeros_like(trust.decays), trust.coefficients, trust.ratios  # the direction has its decay already
        after = trust.decays, trust.ratios, trust.hyper
        return (
            (
                layerwise.lamb_moments,
                (high, blocks.bounds, old, gradient, *kept, trust.decays, trust.sums, trust.hyper),
            ),
            (layerwise.trust_ratios, (blocks.starts, trust.sums, *entry, 0.0)),
            (layerwise.lamb, (high, blocks.bounds, old, new, kept[1], kept[3], *after)),
        )


def layerwise_step(
    optimizer: LayerwiseOptimizer, blocks: Blocks, trust: Trust, old: np.ndarray, new: np.ndarray,
    gradient: np.ndarray, kept: Sequence[np.ndarray], step: int, rate: float, *,
    owners: Sequence[tuple[int, int]] | None = None, backend: Backend | None = None,
) -> None:  # fmt: skip
    """One step on flat vectors, one owner after the other: what several of them do at once between two barriers.

    kept: (old, new) of each slot; owners: the block numbers low, high of each (None: one owns all); backend: None for
    the NumPy definitions. Elements of no entry are left alone in `new`. Raises ConfigError where owners are not a deal.
    """
    total = len(blocks.bounds)
    owners = [(0, total)] if owners is None else owners
    if sorted(b for low, high in owners for b in range(low, high)) != list(range(total)):
        raise ConfigError("layerwise_step(owners=…)", expected=f"each of {total} blocks once", got=repr(owners))

    calls = [optimizer.passes(high, blocks, old, new, gradient, kept, trust) for _, high in owners]

    def run(first: int, call: Pass) -> None:
        operation, args = call
        (operation if backend is None else backend.function(operation, (first, *args)))(first, *args)

    optimizer.fill_hyper(trust.hyper, step, rate)
    for (low, _), (measure, _, _) in zip(owners, calls, strict=True):
        run(low, measure)
    run(len(blocks.starts) - 1, calls[0][1])
    for (low, _), (_, _, update) in zip(owners, calls, strict=True):
        run(low, update)
