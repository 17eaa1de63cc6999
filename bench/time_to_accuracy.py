"""Wall seconds of a whole cold process until keras_mnist knows 99 % of MNIST's test images: corenet beside PyTorch.

    python bench/time_to_accuracy.py --data FOLDER [--rounds 3] [--cores 2] [--json FILE]

FOLDER has MNIST's four IDX files, raw or .gz. Every run is a fresh process, and its time is that from starting it to
its end: imports, reading and preparing the data, compiling, training, and a test after each epoch, which ends the run
once the target is reached. corenet has a worker on each core and an empty cache of compiled kernels; PyTorch a thread
on each, eager and channels_last: torch.compile takes longer to compile than it saves here. The recipe is the same:
batches of 128, Adam under OneCycle, another seed in each round. Contestants take turns.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).parents[1]
sys.path[:0] = [str(CHECKOUT)]

MODEL, BATCH, RATE, EPOCHS = "keras_mnist", 128, 7e-3, 4  # the rate falls to 0 at the end of the last epoch


def train_corenet(folder: Path, cores: list[int], target: float, seed: int) -> list[float]:
    """Accuracies after each epoch."""
    import corenet

    reached: list[float] = []
    rate = corenet.optim.OneCycle(RATE, EPOCHS)
    net = corenet.models.get(MODEL)
    with corenet.Trainer(net, corenet.optim.Adam(rate), workers=len(cores), seed=seed) as trainer:
        train, test = corenet.datasets.load(folder)
        while len(reached) < EPOCHS and max(reached, default=0) < target:
            trainer.fit(train, batch_size=BATCH, callbacks=())
            reached.append(trainer.evaluate(test)["accuracy"])
    return reached


def train_torch(folder: Path, cores: list[int], target: float, seed: int) -> list[float]:
    """Accuracies after each epoch."""
    os.sched_setaffinity(0, cores)
    import torch
    import torch_training as training

    from corenet import datasets

    torch.set_num_threads(len(cores))
    torch.manual_seed(seed)
    sets = datasets.load(folder)
    (x, y), test = (training.tensors(part, (sets[0].mean, sets[0].std)) for part in sets)
    net = training.channels_last(MODEL)
    optimizer = torch.optim.Adam(net.parameters(), RATE)
    schedule = training.one_cycle(optimizer, RATE, EPOCHS, len(x), BATCH)
    reached: list[float] = []
    while len(reached) < EPOCHS and max(reached, default=0) < target:
        training.epoch(net, x, y, BATCH, optimizer, schedule)
        reached.append(training.accuracy(net, *test))
    return reached


CONTESTANTS = {"corenet": train_corenet, "PyTorch": train_torch}


def run(name: str, options: argparse.Namespace, cores: list[int], seed: int) -> dict[str, Any]:
    """Seconds that a fresh process takes, and the accuracies that it reports."""
    from peers import environment

    with tempfile.TemporaryDirectory() as empty:
        path = os.pathsep.join(filter(None, [str(CHECKOUT), os.environ.get("PYTHONPATH")]))
        caches = {"XDG_CACHE_HOME": empty, "TORCHINDUCTOR_CACHE_DIR": empty}
        tuned = environment(len(cores)) if name == "PyTorch" else os.environ
        command = [sys.executable, __file__, "--data", str(options.data.resolve()), "--target", str(options.target)]
        command += ["--run", name, "--seed", str(seed), "--cores", str(len(cores))]
        begin = time.perf_counter()
        done = subprocess.run(command, env={**tuned, **caches, "PYTHONPATH": path}, stdout=subprocess.PIPE, text=True)
        seconds = time.perf_counter() - begin
    if done.returncode:
        sys.exit(f"{name} ended with code {done.returncode}; what it said is above")
    return {"seconds": seconds, "accuracy": json.loads(done.stdout)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, metavar="FOLDER", help="MNIST's four IDX files")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cores", type=int, default=2, help="workers of corenet, threads of PyTorch")
    parser.add_argument("--target", type=float, default=0.99, help="accuracy on the test images that ends a run")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to this file")
    parser.add_argument("--run", choices=CONTESTANTS, help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()

    from corenet.errors import CorenetError
    from corenet.parallel.topology import usable_cpus

    cores = usable_cpus()[: options.cores]
    try:
        if options.run:
            print(json.dumps(CONTESTANTS[options.run](options.data, cores, options.target, options.seed)))
        else:
            measure(options, cores)
    except CorenetError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)


def measure(options: argparse.Namespace, cores: list[int]) -> None:
    """All rounds, and what comes of them."""
    from corenet.bench.rounds import Spread, ratios
    from corenet.datasets.idx import find_split
    from corenet.report.machine import cpu_model
    from corenet.train.files import write_atomically

    find_split(options.data, "test")  # raises for a folder without the files
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in CONTESTANTS}
    for seed in range(options.rounds):
        for name, done in runs.items():
            done.append(run(name, options, cores, seed))
            accuracies = ", ".join(f"{accuracy:.2%}" for accuracy in done[-1]["accuracy"])
            print(f"round {seed + 1}: {name:8}{done[-1]['seconds']:7.1f} s   {accuracies}", flush=True)
    print(f"\n{MODEL} to {options.target:.1%} of MNIST's test images, {len(cores)} cores, the whole process")
    reached = [
        number
        for number in range(options.rounds)
        if all(max(done[number]["accuracy"]) >= options.target for done in runs.values())
    ]
    spreads = {
        name: Spread.of([done[number]["seconds"] for number in reached]) for name, done in runs.items() if reached
    }
    for name, spread in spreads.items():
        print(f"  {name:8}median {spread.median:6.1f} s   ({spread.low:.1f} … {spread.high:.1f})")
    print(f"  both reached it in {len(reached)} of {options.rounds} rounds; others do not count")
    ratio = ratios(spreads["PyTorch"], spreads["corenet"]) if reached else None
    if ratio is not None:
        print(f"  PyTorch / corenet: {ratio.median:.2f}   ({ratio.low:.2f} … {ratio.high:.2f})")
    if options.json:
        recipe = {"model": MODEL, "batch": BATCH, "optimizer": "Adam", "one_cycle": RATE, "epochs": EPOCHS}
        machine = {"name": platform.node(), "cpu": cpu_model(), "cores": cores, "system": platform.platform()}
        result = {"target": options.target, "recipe": recipe, "machine": machine, "runs": runs, "counted": reached}
        result["ratio"] = None if ratio is None else ratio.to_json()
        write_atomically(options.json, (json.dumps(result, indent=1) + "\n").encode())


if __name__ == "__main__":
    main()
