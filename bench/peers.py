"""Starts PyTorch in a process of its own and talks to it: what `corenet bench … --peers` finds in a checkout.

corenet/bench/peers.py says what is asked and answered.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from corenet.errors import WorkerError

VERSION = importlib.metadata.version("torch")
SCRIPT = Path(__file__).with_name("torch_peer.py")
CHECKOUT = SCRIPT.parents[1]
TUNED_MALLOC = {  # freed memory is kept, not given back and faulted in again: PyTorch is up to a quarter faster
    "MALLOC_MMAP_THRESHOLD_": str(1 << 30),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 32),
    "MALLOC_TOP_PAD_": str(1 << 28),
}


def environment(threads: int) -> dict[str, str]:
    """Of a process in which PyTorch runs on that many threads, as fast as it can."""
    path = os.pathsep.join(filter(None, [str(CHECKOUT), os.environ.get("PYTHONPATH")]))
    count = str(threads)
    compiling = {"TORCHINDUCTOR_COMPILE_THREADS": "1"}  # in the process itself: no pool that outlives it
    return {**os.environ, **TUNED_MALLOC, **compiling, "OMP_NUM_THREADS": count, "PYTHONPATH": path}


def start(cores: list[int]) -> TorchPeer:
    """PyTorch on these cores, a thread on each."""
    return TorchPeer(cores)


class TorchPeer:
    """PyTorch in a process of its own, bound to some cores."""

    def __init__(self, cores: list[int]):
        self.process = subprocess.Popen(
            [sys.executable, str(SCRIPT), ",".join(map(str, cores))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment(len(cores)),
            start_new_session=True,  # Ctrl-C is for the command, which ends this process
        )

    def ask(self, **question: Any) -> dict[str, Any]:
        """Its answer to a question. Raises WorkerError if it has ended."""
        assert self.process.stdin is not None and self.process.stdout is not None
        try:
            print(json.dumps(question), file=self.process.stdin, flush=True)
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            code = self.process.wait()
            raise WorkerError(f"PyTorch's process ended with code {code}; what it said is above")
        return json.loads(line)

    def close(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()
