"""What planning makes: the steps of one chunk, the arrays they use, and what is done once per batch.

Nothing here has memory or runs: a plan is the same on every worker, because it depends on the net and the sizes only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

from ..kernels.operation import Operation
from .buffer import Buffer
from .layout import Layout


@dataclass(frozen=True)
class Tensor:
    """An activation of a chunk: its data, and its gradient where one is needed (training, and not the images)."""

    data: Buffer  # (chunk, *shape)
    grad: Any  # its gradient: a Buffer, or None
    shape: tuple[int, ...]  # of one sample


@dataclass(frozen=True)
class Parameter:
    """A trained array: its values, and a chunk's gradient (None where the batch makes it, see `product`)."""

    data: Buffer
    grad: Any  # its gradient: a Buffer, or None


@dataclass(frozen=True)
class Statistic:
    """A running array that training measures: its running values, and what a chunk measured."""

    running: Buffer
    chunk: Buffer


class Plannable(Protocol):
    """A layer, as far as the engine knows it."""

    def plan(self, p: Any, x: Tensor) -> Tensor: ...


@dataclass(eq=False)
class Place:
    """A layer at its place in the net, and what it planned there."""

    path: str  # "4.body.1"; empty for the net itself
    type: str
    shape: tuple[int, ...] = ()  # of its output
    buffers: list[Buffer] = field(default_factory=list)
    flops: int = 0  # of a sample, forward
    training_flops: int = 0  # of a sample, forward and backward, if it is planned for training

    def __str__(self) -> str:
        return f"{f'layer {self.path}' if self.path else 'net'} ({self.type})"


@dataclass(frozen=True)
class Step:
    """One kernel call of a chunk: operation(n, *args), args being buffers or plain values."""

    operation: Operation | Callable
    args: tuple[Any, ...]
    layer: Place | None = None  # whose step it is; None: the loss's

    def buffers(self) -> Iterator[Buffer]:
        return (arg for arg in self.args if isinstance(arg, Buffer))


@dataclass(frozen=True)
class Meet:
    """All chunks are brought this far before any goes on: then every worker makes the same from all chunks' rows.

    operation(chunks, *columns of the rows, counts, *results, *args), results being in the space "common".
    """

    operation: Operation
    columns: tuple[Buffer, ...]  # of the row
    results: tuple[Buffer, ...]
    args: tuple[Any, ...]


@dataclass(frozen=True)
class Product:
    """A weight gradient made once per batch: operation(samples, x panel, dy panel, dw, low row, high row)."""

    operation: Operation
    x: Buffer
    dy: Buffer
    name: str


@dataclass(frozen=True)
class Merge:
    """Running statistics moved once per batch: operation(chunks, *measured, counts, *old, *new, *args)."""

    operation: Operation
    names: tuple[str, ...]
    args: tuple[Any, ...]


@dataclass(frozen=True)
class Plan:
    """Everything that one chunk does, and the bytes of each space that it needs."""

    input_shape: tuple[int, ...]
    output_shape: tuple[int, ...]
    layers: tuple[Place, ...]  # each before those inside it
    decisions: tuple[tuple[Any, dict[str, Any]], ...]  # layers, and what arguments that left a choice have become
    chunk: int
    batch: int
    training: bool
    forward: tuple[Step | Meet, ...]
    backward: tuple[Step | Meet, ...]
    products: tuple[Product, ...]
    merges: tuple[Merge, ...]
    layout: Layout
    initializers: dict[str, Callable]
    statistics: dict[str, float]
    images: Buffer
    targets: Buffer
    samples: Buffer
    clock: Buffer
    scale: Buffer
    metrics: Buffer
    output: Buffer
    bytes: dict[str, int]

    @property
    def row_size(self) -> int:
        """Elements of a chunk's row: its gradients and measured statistics."""
        return self.layout.stat_end

    @property
    def meets(self) -> tuple[Meet, ...]:
        """Where all chunks of a batch have to wait for each other."""
        return tuple(step for step in (*self.forward, *self.backward) if isinstance(step, Meet))

    @property
    def normalises_by_chunk(self) -> bool:
        """Whether a layer measures statistics that do not meet those of the other chunks: a BatchNorm without sync."""
        return len(self.merges) > sum(isinstance(step, Meet) for step in self.forward)

    @property
    def chunks(self) -> int:
        """Chunks of a full batch."""
        return -(-self.batch // self.chunk)
