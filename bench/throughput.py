"""Training throughput of corenet on 1 and more workers against PyTorch on as many threads, interleaved in one run.

    python bench/throughput.py [--model keras_mnist] [--batch 128] [--rounds 5] [--images 60000] [--json FILE]

Every round measures all contestants in turn; the table shows medians and the ratios' medians, round by round, so a
machine that slows down half-way does not decide. Needs PyTorch for the peer (left out if it is missing), and the
complete Fashion-MNIST for 28×28 nets; others train on random images.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

import corenet
from corenet.parallel.topology import usable_cpus

TUNED_MALLOC = {  # makes PyTorch up to a quarter faster
    "MALLOC_MMAP_THRESHOLD_": str(1 << 30),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 32),
    "MALLOC_TOP_PAD_": str(1 << 28),
}
PAUSE = 0.3  # seconds between contestants: thread pools stop spinning


class Ours:
    """corenet on some workers."""

    def __init__(self, model: str, batch: int, workers: int, data):
        self.trainer = corenet.Trainer(
            corenet.models.get(model), corenet.optim.SGD(0.01, momentum=0.9), workers=workers
        )
        self.data, self.batch = data, batch
        self.measure()

    def measure(self) -> float:
        history = self.trainer.fit(self.data, batch_size=self.batch, callbacks=())
        return history["images_per_second"][0]


class Theirs:
    """PyTorch on some threads, bound to as many cores."""

    def __init__(self, model: str, batch: int, threads: int, images: int):
        cores = usable_cpus()[:threads]
        script = Path(__file__).with_name("torch_peer.py")
        self.images = images
        self.process = subprocess.Popen(
            [sys.executable, str(script), model, str(batch), str(threads)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **TUNED_MALLOC, "OMP_NUM_THREADS": str(threads)},
        )
        os.sched_setaffinity(self.process.pid, cores)
        self.setup = self._read()

    def _read(self) -> dict:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            sys.exit("the PyTorch process ended; its message is above")
        return json.loads(line)

    def measure(self) -> float:
        assert self.process.stdin is not None
        print(f"run {self.images}", file=self.process.stdin, flush=True)
        return self._read()["images_per_second"]


def load(model: str, images: int):
    shape = corenet.models.INPUT_SHAPES[model]
    if shape == (28, 28, 1):
        data = corenet.datasets.fashion_mnist()[0]
        return data.subset(slice(0, min(images, len(data))))
    random = np.random.default_rng(0)
    pixels = random.integers(0, 256, (min(images, 12_800), *shape), dtype=np.uint8)
    return corenet.datasets.from_arrays(pixels, random.integers(0, 10, len(pixels)), classes=tuple("0123456789"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    pictures = [name for name, shape in corenet.models.INPUT_SHAPES.items() if shape[2] in (1, 3)]
    pictures = [name for name in pictures if corenet.models.classifies(name)]
    parser.add_argument("--model", default="keras_mnist", choices=pictures)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--images", type=int, default=60_000, help="images per measurement")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args()
    data = load(options.model, options.images)
    cores = len(usable_cpus())
    counts = [1] if cores == 1 else [1, cores]
    contestants = {f"corenet {n} worker{'s' * (n > 1)}": Ours(options.model, options.batch, n, data) for n in counts}
    if importlib.util.find_spec("torch"):
        for n in counts:
            peer = contestants[f"PyTorch {n} thread{'s' * (n > 1)}"] = Theirs(
                options.model, options.batch, n, len(data)
            )
            print(f"PyTorch, {n} thread(s): {peer.setup['way']} is fastest of {sorted(peer.setup['rates'])}")
    figures: dict[str, list[float]] = {name: [] for name in contestants}
    for number in range(options.rounds):
        for name, contestant in contestants.items():
            time.sleep(PAUSE)
            figures[name].append(contestant.measure())
        print(f"round {number + 1}: " + ", ".join(f"{name} {rates[-1]:,.0f}" for name, rates in figures.items()))
    print(f"\n{options.model}, batch {options.batch}, {data.name}, {len(data):,} images a measurement, images/s")
    for name, rates in figures.items():
        print(f"  {name:22s} median {statistics.median(rates):9,.0f}   ({min(rates):,.0f} … {max(rates):,.0f})")
    ours, theirs = ([name for name in figures if name.startswith(who)] for who in ("corenet", "PyTorch"))
    comparisons = [(more, ours[0]) for more in ours[1:]] + list(zip(ours, theirs, strict=False))
    ratios = {}
    for top, bottom in comparisons:
        pairs = [a / b for a, b in zip(figures[top], figures[bottom], strict=True)]
        ratios[f"{top} / {bottom}"] = statistics.median(pairs)
        print(f"  {top} / {bottom}: {statistics.median(pairs):.2f}   ({min(pairs):.2f} … {max(pairs):.2f})")
    if options.json:
        machine = {"cpu": platform.processor() or platform.machine(), "cores": cores, "system": platform.platform()}
        settings = {"model": options.model, "batch": options.batch, "images": len(data)}
        options.json.write_text(json.dumps({**settings, **machine, "figures": figures, "ratios": ratios}, indent=1))


if __name__ == "__main__":
    main()
