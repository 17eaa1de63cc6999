"""The suite of nets: images a second of whole training steps, and of predictions, as the public Trainer does them.

Images are random bytes, labels random classes: speed does not depend on them. How much of a training step is spent
outside of kernels shows in a Trainer whose kernels do nothing. Training is one epoch of `fit` over as
many images as take the time asked for, with shuffling and scaling; starting and compiling come before. Prediction is
`predict`, which also copies the images to where the workers find them.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from .. import models, optim
from ..datasets import Dataset, from_arrays
from ..engine import make_plan
from ..errors import ConfigError
from ..nn import CrossEntropy
from ..train import Trainer
from .layers import NETS
from .peaks import Peaks
from .peers import Peer, Starter
from .rounds import Measure, interleave, ratios

MOST_IMAGES = 12_800  # that a measurement goes over
KINDS = ("train", "predict")
PAUSE = 0.3  # seconds before each measurement if there are peers: their threads stop spinning


@dataclass(frozen=True)
class How:
    """How long, and in what portions, everything is measured."""

    rounds: int = 5
    seconds: float = 1.0  # a measurement takes, unless that is more than MOST_IMAGES


def choose(only: list[str]) -> list[str]:
    """The nets of the suite, or those named. Raises ConfigError for others."""
    for name in only:
        if name not in NETS:
            raise ConfigError("--only", expected="one of " + ", ".join(NETS), got=repr(name))
    return [name for name in NETS if not only or name in only]


def random_images(model: str, count: int) -> Dataset:
    """Random bytes of the shape that a net takes, and random labels."""
    random = np.random.default_rng(0)
    pixels = random.integers(0, 256, (count, *models.INPUT_SHAPES[model]), dtype=np.uint8)
    return from_arrays(pixels, random.integers(0, 10, count), classes=tuple("0123456789"), name="random")


class Ours:
    """corenet on some workers, and how many images it takes to measure it."""

    def __init__(self, model: str, batch: int, workers: int, images: Dataset, seconds: float, kernels: str = "auto"):
        optimizer = optim.SGD(0.01, momentum=0.9)
        self.trainer = Trainer(models.get(model), optimizer, workers=workers, kernels=kernels)
        try:
            few = images.subset(slice(0, 8 * batch))
            self._train(few, batch)  # starts the workers and compiles
            self._predict(few)
            self.portions = {}
            for kind, rate in (("train", self._train(few, batch)), ("predict", self._predict(few))):
                count = max(8, round(rate * seconds / batch)) * batch
                self.portions[kind] = images.subset(slice(0, min(count, len(images) // batch * batch)))
        except BaseException:
            self.trainer.close()
            raise
        self.measures: dict[str, Measure] = {
            "train": partial(self._train, self.portions["train"], batch),
            "predict": partial(self._predict, self.portions["predict"]),
        }

    def _train(self, data: Dataset, batch: int) -> float:
        return self.trainer.fit(data, batch_size=batch, callbacks=())["images_per_second"][0]

    def _predict(self, data: Dataset) -> float:
        begin = time.perf_counter()
        self.trainer.predict(data)
        return len(data) / (time.perf_counter() - begin)


def flops_of(model: str) -> dict[str, int]:
    """FLOPs of a sample, as direct convolution: in training, and in prediction."""
    plan = make_plan(models.get(model), models.INPUT_SHAPES[model], 1, loss=CrossEntropy())
    return {
        "train": sum(layer.training_flops for layer in plan.layers),
        "predict": sum(layer.flops for layer in plan.layers),
    }


def measure(
    model: str, batch: int, how: How, cores: list[int], peaks: Peaks, starter: Starter | None = None
) -> Iterator[dict[str, Any]]:
    """A net on one core and on all, beside peers if they can be started; a line for each way of using it."""
    counts, flops, images = sorted({1, len(cores)}), flops_of(model), random_images(model, MOST_IMAGES)
    contestants: dict[str, Measure] = {}
    portions: dict[str, int] = {}
    ways: dict[int, dict[str, str]] = {}
    with contextlib.ExitStack() as stack:
        for count in counts:
            ours = Ours(model, batch, count, images, how.seconds)
            stack.callback(ours.trainer.close)
            idle = Ours(model, batch, count, images, how.seconds / 10, "null")
            stack.callback(idle.trainer.close)
            contestants[f"idle {_name(model, batch, count, 'train')}"] = idle.measures["train"]
            peer = None
            if starter is not None:
                peer = starter.start(cores[:count])
                stack.callback(peer.close)
                ways[count] = peer.ask(do="net", model=model, batch=batch)["ways"]
            for kind in KINDS:
                name = _name(model, batch, count, kind)
                portions[name], contestants[name] = len(ours.portions[kind]), ours.measures[kind]
                if peer is not None:
                    contestants[f"peer {name}"] = partial(_rate_of_peer, peer, kind, how.seconds)
        spreads = interleave(contestants, how.rounds, PAUSE if starter else 0.0)
    for count in counts:
        for kind in KINDS:
            name = _name(model, batch, count, kind)
            spread, gflops = spreads[name], spreads[name].median * flops[kind] * 1e-9
            line = {
                "name": name,
                "unit": "images/s",
                **spread.to_json(),
                "net": model,
                "batch": batch,
                "workers": count,
                "kind": kind,
                "images": portions[name],
                "flops": flops[kind],
                "gflops": gflops,
                "percent_of_peak": 100 * gflops / peaks.compute(count),
            }
            if kind == "train":  # what is left of the time if kernels do nothing
                line["percent_outside"] = 100 * spread.median / spreads[f"idle {name}"].median
            if starter is not None:
                theirs = spreads[f"peer {name}"]
                ratio = ratios(spread, theirs).to_json()
                line["peer"] = {"way": ways[count][kind], **theirs.to_json(), "ratio": ratio}
            yield line


def _name(model: str, batch: int, workers: int, kind: str) -> str:
    return f"{model}, batch {batch}, {workers} worker{'s' * (workers > 1)}, {kind}"


def _rate_of_peer(peer: Peer, kind: str, seconds: float) -> float:
    return peer.ask(do=kind, seconds=seconds)["rate"]
