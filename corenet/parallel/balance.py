"""Who does how much: pure functions from what is known of the workers to borders of slices and shards.

A slice is a run of chunks that a worker computes, a shard a run of the state vector that it reduces and updates. A
chunk's gradient does not depend on who makes it, so borders may lie anywhere without leaving a trace in the result.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from ..errors import ConfigError


class Balancer(ABC):
    """Base of balancers."""

    @abstractmethod
    def borders(self, chunks: int, workers: int) -> tuple[int, ...]:
        """workers + 1 ascending numbers from 0 to chunks: worker w computes chunks borders[w] … borders[w+1]."""


class Equal(Balancer):
    """Slices that differ by at most one chunk."""

    def borders(self, chunks: int, workers: int) -> tuple[int, ...]:
        return tuple(chunks * w // workers for w in range(workers + 1))


BALANCERS: dict[str, type[Balancer]] = {"equal": Equal}


def get_balancer(name: str) -> Balancer:
    """The balancer of that name; ConfigError lists the names."""
    if name not in BALANCERS:
        raise ConfigError("balance", expected="one of " + ", ".join(map(repr, BALANCERS)), got=repr(name))
    return BALANCERS[name]()
