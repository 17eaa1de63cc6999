"""The opponent: PyTorch on the CPU, in a process of its own, asked line by line; see corenet/bench/peers.py.

    python bench/torch_peer.py CORES      such as 0,1: as many threads; then questions on standard input

A net uses the fastest of eager, channels_last and torch.compile, for training and prediction each, found by measuring
all three first. Data are in memory as normalised float32 tensors, and batches are plain slices: PyTorch pays for no
shuffling, corenet does.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

CORES = [int(core) for core in sys.argv[1].split(",")]
if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, CORES)  # before PyTorch is imported: its threads inherit it

import torch  # noqa: E402
from torch import nn  # noqa: E402
from torch_layers import LayerPeer  # noqa: E402
from torch_nets import to_torch  # noqa: E402

from corenet import models  # noqa: E402

WAYS = ("eager", "channels_last", "compile")
POOL = 16  # batches of images


class Way:
    """One way of running a net."""

    def __init__(self, model: str, batch: int, way: str):
        self.net = to_torch(models.get(model))
        height, width, channels = models.INPUT_SHAPES[model]
        memory = torch.contiguous_format if way == "eager" else torch.channels_last
        self.net.to(memory_format=memory)
        self.forward: Any = torch.compile(self.net) if way == "compile" else self.net
        self.optimizer = torch.optim.SGD(self.net.parameters(), 0.01, momentum=0.9)
        self.batch, self.number = batch, 0
        self.x = torch.randn(batch * POOL, channels, height, width).to(memory_format=memory)
        self.y = torch.randint(0, 10, (batch * POOL,))

    def train(self) -> None:
        """One step."""
        x, y = self._next()
        self.optimizer.zero_grad(set_to_none=True)
        nn.functional.cross_entropy(self.forward(x), y).backward()
        self.optimizer.step()

    def predict(self) -> None:
        """The probabilities of one batch."""
        with torch.inference_mode():
            self.forward(self._next()[0]).softmax(1)

    def _next(self) -> tuple[torch.Tensor, torch.Tensor]:
        first = self.number % POOL * self.batch
        self.number += 1
        return self.x[first : first + self.batch], self.y[first : first + self.batch]

    def rate(self, kind: str, seconds: float) -> float:
        """Images a second of "train" or "predict"."""
        self.net.train(kind == "train")
        run = self.train if kind == "train" else self.predict
        begin, calls = time.perf_counter(), 0
        while (passed := time.perf_counter() - begin) < seconds or not calls:
            run()
            calls += 1
        return calls * self.batch / passed


class NetPeer:
    """A net, and the fastest way to train it and to predict with it."""

    def __init__(self, model: str, batch: int):
        rates: dict[str, dict[str, float]] = {"train": {}, "predict": {}}
        ways: dict[str, Way] = {}
        for name in WAYS:
            try:
                way = Way(model, batch, name)
                for kind in rates:
                    way.rate(kind, 0.1)  # compiles
                    rates[kind][name] = max(way.rate(kind, 0.2) for _ in range(3))
                ways[name] = way
            except Exception as error:  # torch.compile needs a C++ compiler
                print(f"PyTorch, {name}: {type(error).__name__}, left out", file=sys.stderr)
        self.names = {kind: max(found, key=found.__getitem__) for kind, found in rates.items()}
        self.ways = {kind: ways[name] for kind, name in self.names.items()}


def main() -> None:
    torch.set_num_threads(len(CORES))
    peer: Any = None
    for line in sys.stdin:
        question = json.loads(line)
        match question.pop("do"):
            case "layer":
                peer = LayerPeer(**question)
                answer: dict[str, Any] = {"ways": peer.ways}
            case "pass":
                answer = {"rate": peer.rate(**question)}
            case "net":
                peer = NetPeer(**question)
                answer = {"ways": peer.names}
            case "train" | "predict" as kind:
                answer = {"rate": peer.ways[kind].rate(kind, question["seconds"])}
            case other:
                sys.exit(f"unknown question {other!r}")
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
