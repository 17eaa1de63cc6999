"""The suite of layers: forward pass and both gradients of each, as the engine plans them, checked and timed.

    pass       work counted     steps
    forward    2 · MACs · n     all forward steps of the layer: padding, product, bias
    data       2 · MACs · n     backward steps that give the gradient of the input
    weights    2 · MACs · n     backward steps that give those of weight and bias

MACs are those of direct convolution, so an algorithm that needs fewer can exceed 100 % of the machine's peak.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ..kernels.backend import Backend
from .layers import Case
from .passes import PASSES, Pass, PlannedLayer
from .peaks import Peaks
from .peers import Peer
from .rounds import Measure, Spread, interleave, ratios, repeated

BOUND = 1e-4  # of the largest number of a result: what a kernel may be wrong by; Winograd rounds to some 1e-6


class WrongResult(Exception):
    """A kernel does not compute what its definition says: its speed is of no interest."""


@dataclass(frozen=True)
class How:
    """How long, and in what portions, everything is measured."""

    batch: int = 128
    rounds: int = 7
    seconds: float = 0.05  # a measurement takes


def verify(case: Case, batch: int, planned: PlannedLayer) -> dict[str, float]:
    """Run all passes as they are linked, and as NumPy defines direct convolution; the largest errors, relatively.

    Raises WrongResult for one that is beyond the bound.
    """
    definition = PlannedLayer(case, batch, direct=True)
    errors = {}
    for name in PASSES:
        planned.passes[name].run()
        definition.passes[name].run()
        pairs = zip(planned.result(name), definition.result(name), strict=True)
        error = float(np.max([np.abs(got - right).max() / np.abs(right).max() for got, right in pairs]))
        if not error <= BOUND:  # also if it is NaN
            what = f"{case.name}, {name}, {planned.passes[name].algorithm}"
            raise WrongResult(f"{what}: expected an error of at most {BOUND:g} of the largest number, got {error:g}")
        errors[name] = error
    return errors


def measure(case: Case, how: How, backend: Backend, peaks: Peaks, peer: Peer | None = None) -> Iterator[dict[str, Any]]:
    """Check and time a layer in the calling thread, on one core, beside a peer if there is one; a line for each pass.

    Raises WrongResult before anything is timed.
    """
    planned = PlannedLayer(case, how.batch)
    for one in planned.passes.values():
        one.link(backend)
    errors = verify(case, how.batch, planned)
    ways = {}
    if peer is not None:
        what = {"layer": case.description(), "batch": how.batch, "chunk": planned.chunk, "seconds": how.seconds}
        ways = peer.ask(do="layer", **what)["ways"]
    for name, one in planned.passes.items():
        contestants = {"corenet": _gflops(one, planned.flops, how.seconds)}
        if peer is not None:
            contestants["peer"] = partial(_gflops_of_peer, peer, name, planned.flops, how.seconds)
        spreads = interleave(contestants, how.rounds)
        line = _line(case, name, one, planned, spreads["corenet"], peaks)
        line["error"] = errors[name]
        if peer is not None:
            ratio = ratios(spreads["corenet"], spreads["peer"])
            line["peer"] = {"way": ways[name], **spreads["peer"].to_json(), "ratio": ratio.to_json()}
        yield line


def _gflops(one: Pass, flops: int, seconds: float) -> Measure:
    rate = repeated(one.run, seconds)
    return lambda: rate() * one.samples * flops * 1e-9


def _gflops_of_peer(peer: Peer, name: str, flops: int, seconds: float) -> float:
    return peer.ask(do="pass", name=name, seconds=seconds)["rate"] * flops * 1e-9


def _line(case: Case, name: str, one: Pass, planned: PlannedLayer, spread: Spread, peaks: Peaks) -> dict[str, Any]:
    intensity = one.samples * planned.flops / one.bytes
    return {
        "name": f"{case.name}, {name}",
        "unit": "GFLOP/s",
        **spread.to_json(),
        "layer": case.name,
        "pass": name,
        "nets": case.nets,
        "algorithm": one.algorithm,
        "chunk": planned.chunk,
        "samples": one.samples,
        "flops": one.samples * planned.flops,
        "bytes": one.bytes,
        "intensity": intensity,
        "roofline": min(peaks.compute(1), intensity * peaks.memory(1)),
        "percent_of_peak": 100 * spread.median / peaks.compute(1),
    }
