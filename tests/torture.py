"""Torture: workers are killed and stopped, and parents interrupted, at random moments of many short runs.

    python tests/torture.py --faults 500 --seed 1

Every run trains a net of `NETS` for some epochs in a program of its own, while signals hit processes of it at random
times: SIGKILL and SIGSTOP a worker, SIGINT the parent. A run that is not interrupted must end with the very bits of the
undisturbed one and an empty standard error, an interrupted one as Ctrl-C ends programs; no run may hang, and neither
processes nor shared memory may be left. The last line sums up; the exit code is 1 if anything was not as it should be.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from conftest import Program

LIMIT = 120  # seconds until a run counts as hanging
TIMEOUT = 4.0  # seconds without progress after which a worker counts as stuck; a process must have started in less
FAULTS = ("SIGKILL",) * 6 + ("SIGSTOP",) + ("SIGINT",)

# What a run is: the net, its optimizer, the kernels, and the epochs, for a second or two of training.
NETS = {
    "dense": ("nn.Flatten(), nn.Linear(36, 8), nn.ReLU(), nn.Linear(8, 4)", "optim.Adam(1e-3)", "numba", 80),
    "conv": (
        "nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16, 4)", "optim.SGD(0.05)",
        "numba", 80,
    ),
    "norm": (
        "nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4, sync=True), nn.ReLU(), nn.Flatten(), nn.Dropout(0.3), nn.Linear(64, 4)",
        "optim.SGD(0.05, momentum=0.9, clip_norm=1.0)", "numba", 60,
    ),
    "ghost": (
        "nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 4)",
        "optim.SGD(0.05, momentum=0.9, ema=0.99)", "numpy", 20,
    ),
    "trust": ("nn.Flatten(), nn.Linear(36, 16), nn.Tanh(), nn.Linear(16, 4)", "optim.LAMB(1e-3)", "numpy", 20),
}  # fmt: skip

PROGRAM = """
import json, sys, threading, time
import numpy as np
import corenet
from corenet import nn, optim
generator = np.random.default_rng(0)
y = generator.integers(0, 4, 700)
x = (generator.integers(0, 100, (700, 6, 6, 1)) + 30 * y[:, None, None, None]).astype(np.uint8)
course = []  # (time, steps done)
def watch():
    while True:
        course.append((time.monotonic(), trainer._session.step if trainer._session else 0))
        time.sleep(0.01)
with corenet.Trainer(nn.Sequential({net}), {optimizer}, **{settings}) as trainer:
    threading.Thread(target=watch, daemon=True).start()
    history = trainer.fit((x, y), epochs={epochs}, batch_size={batch}, validation=(x, y), callbacks=())
    bits = trainer.params_sha256(), history["loss"], history["val_loss"], float(trainer.predict(x[:50]).sum())
    print("done", flush=True)
print(json.dumps([bits, [str(r) for r in history.recoveries], [r.seconds for r in history.recoveries], course]))
"""


@dataclass
class Tally:
    """What has happened over all runs."""

    runs: int = 0
    interrupted: int = 0
    faults: dict[str, int] = field(default_factory=lambda: dict.fromkeys(dict.fromkeys(FAULTS), 0))
    recoveries: int = 0
    resumed: list[float] = field(default_factory=list)  # seconds from a kill to the next complete step
    wrong: list[str] = field(default_factory=list)

    def line(self) -> str:
        """All of it in a line."""
        hits = ", ".join(f"{count} {name}" for name, count in self.faults.items())
        text = f"{self.runs} runs, {sum(self.faults.values())} faults ({hits}), {self.recoveries} recoveries"
        text += f", {self.interrupted} runs interrupted, {len(self.wrong)} wrong"
        if self.resumed:
            ordered = sorted(self.resumed)
            text += f"; from a kill to the next complete step: median {ordered[len(ordered) // 2]:.2f} s, "
            text += f"most {ordered[-1]:.2f} s (of {len(ordered)})"
        return text


def code(net: str, workers: int, restarts: int, seed: int, batch: int) -> str:
    """The program of a run."""
    layers, optimizer, kernels, epochs = NETS[net]
    settings = {"workers": workers, "share_cores": True, "kernels": kernels, "seed": seed, "chunk": 4}
    settings |= {"max_restarts": restarts, "worker_timeout": TIMEOUT}
    return PROGRAM.format(net=layers, optimizer=optimizer, settings=settings, epochs=epochs, batch=batch)


def torture(run: Program, faults: list[tuple[float, str]], chance: random.Random, tally: Tally) -> list[tuple]:
    """Send signals, each so many seconds after the last; (time, name) of those that hit."""
    parent, hits = psutil.Process(run.process.pid), []
    for pause, name in faults:
        time.sleep(pause)
        workers = []
        with contextlib.suppress(psutil.Error):
            workers = parent.children()
        if run.process.poll() is not None or not workers:
            continue
        victim = parent if name == "SIGINT" else chance.choice(workers)
        with contextlib.suppress(psutil.Error, ProcessLookupError):
            os.kill(victim.pid, getattr(signal, name))
            hits.append((time.monotonic(), name))
            tally.faults[name] += 1
        if name == "SIGINT":
            break
    return hits


def judge(run: Program, hits: list[tuple], expected: list, tally: Tally) -> list[str]:
    """Wait for the end of a run; what is wrong with it."""
    try:
        out, err = run.process.communicate(timeout=LIMIT)
    except Exception as error:
        return [f"it hangs ({type(error).__name__})"]
    wrong = []
    if any(name == "SIGINT" for _, name in hits) and "done" not in out:
        tally.interrupted += 1
        if run.process.returncode != -signal.SIGINT or not err.rstrip().endswith("KeyboardInterrupt"):
            wrong.append(f"interrupted, it ended with {run.process.returncode}: {err[-500:]}")
    elif run.process.returncode != 0 or err:
        wrong.append(f"exit code {run.process.returncode}: {err[-500:]}")
    else:
        bits, recoveries, _, course = json.loads(out.splitlines()[-1])
        tally.recoveries += len(recoveries)
        if bits != expected:
            wrong.append(f"other bits: {bits} in place of {expected}; {recoveries}")
        tally.resumed += resumed(hits, course)
    if left := run.survivors():
        wrong.append(f"left over: {left}")
    return wrong


def resumed(hits: list[tuple], course: list) -> list[float]:
    """Seconds from each kill in the middle of training, with no other soon after, to the next complete step."""
    found = []
    for (at, name), (after, _) in zip(hits, [*hits[1:], (float("inf"), "")], strict=False):
        before = [step for when, step in course if at - 0.1 < when < at]
        later = [(when, step) for when, step in course if when > at + 0.03]
        if name == "SIGKILL" and len(set(before)) > 1 and later:
            end = next((when for when, step in later if step > later[0][1]), float("inf"))
            if end < after:
                found.append(end - at)
    return found


def main(arguments: list[str] | None = None) -> int:
    """Run until so many faults have hit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    chance, tally = random.Random(options.seed), Tally()
    expected: dict[tuple, Any] = {}
    with tempfile.TemporaryDirectory() as name:
        while sum(tally.faults.values()) < options.faults:
            one(chance, expected, tally, Path(name))
            print(f"\r{tally.line()}", end="", file=sys.stderr, flush=True)
    print("", file=sys.stderr)
    for wrong in tally.wrong:
        print(wrong)
    print(tally.line())
    return 1 if tally.wrong else 0


def one(chance: random.Random, expected: dict[tuple, Any], tally: Tally, folder: Path) -> None:
    """One run, after an undisturbed one of its kind."""
    kind = chance.choice(list(NETS)), chance.randrange(2), chance.choice((8, 12))
    net, seed, batch = kind
    if kind not in expected:
        calm = Program(code(net, 1, 0, seed, batch), folder=folder, prelude="")
        expected[kind] = json.loads(calm.succeed().splitlines()[-1])[0]
    count, workers = chance.randint(1, 6), chance.randint(1, 4)
    faults = [(chance.uniform(0.0, 1.6), chance.choice(FAULTS)) for _ in range(count)]
    restarts = chance.choice((count, max(0, count - chance.randrange(workers))))  # somebody is always left
    run = Program(code(net, workers, restarts, seed, batch), folder=folder, prelude="")
    try:
        hits = torture(run, faults, chance, tally)
        wrong = judge(run, hits, expected[kind], tally)
    finally:
        run.kill()
    tally.runs += 1
    tally.wrong += [f"{net}, {workers} workers, {restarts} restarts, {hits}: {text}" for text in wrong]


if __name__ == "__main__":
    sys.exit(main())
