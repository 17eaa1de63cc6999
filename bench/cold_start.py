"""Seconds from a trainer's making to the end of its second step: from an empty cache of compiled kernels, and warm.

    python bench/cold_start.py [--only NET] [--workers 2] [--rounds 1] [--kernels numba] [--json FILE]

Every measurement is a process of its own, on random images in batches of 128; importing corenet comes before.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from corenet import Trainer, models, optim
from corenet.bench.layers import NETS
from corenet.bench.steps import random_images
from corenet.train.files import write_atomically

BATCH = 128


def two_steps(model: str, workers: int, kernels: str) -> float:
    """Seconds that the trainer's start and two steps take here."""
    images = random_images(model, 2 * BATCH)
    begin = time.perf_counter()
    with Trainer(models.get(model), optim.SGD(0.1, momentum=0.9), workers=workers, kernels=kernels) as trainer:
        trainer.fit(images, epochs=1, batch_size=BATCH, callbacks=())
        return time.perf_counter() - begin


def in_a_process(model: str, options: argparse.Namespace, cache: str) -> float:
    """The same in a fresh process with that cache."""
    command = [
        sys.executable,
        __file__,
        "--child",
        model,
        "--workers",
        str(options.workers),
        "--kernels",
        options.kernels,
    ]
    done = subprocess.run(command, env=os.environ | {"XDG_CACHE_HOME": cache}, check=True, stdout=subprocess.PIPE)
    return float(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", action="append", choices=list(NETS), metavar="NET", help="may be repeated")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--kernels", default="numba")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to this file")
    parser.add_argument("--child", choices=list(NETS), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(two_steps(options.child, options.workers, options.kernels))
        return
    found: dict[str, dict[str, list[float]]] = {}
    for model in options.only or NETS:
        seconds: dict[str, list[float]] = {"cold": [], "warm": []}
        for _ in range(options.rounds):
            with tempfile.TemporaryDirectory() as cache:
                for kind in seconds:
                    seconds[kind].append(in_a_process(model, options, cache))
        found[model] = seconds
        cold, warm = (statistics.median(values) for values in seconds.values())
        print(f"{model:14}cold {cold:5.1f} s   warm {warm:4.1f} s", flush=True)
    if options.json:
        write_atomically(options.json, json.dumps(found).encode())


if __name__ == "__main__":
    main()
