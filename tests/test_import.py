"""Importing and using corenet leaves the process as it was: modules, threads, cores, settings, floating-point mode."""

import json
import os

import pytest

import corenet

# What can be seen of a process, before and after.
LOOK = """
import json, os, signal, sys, threading, time

def denormals():
    tiny = sys.float_info.min
    return tiny / 2 != 0 and tiny / 4 * 1.0 != 0

def in_a_thread(function):
    results, tasks = [], len(os.listdir("/proc/self/task"))
    thread = threading.Thread(target=lambda: results.append(function()))
    thread.start()
    thread.join()
    while len(os.listdir("/proc/self/task")) > tasks:  # Python's thread has ended, the system's takes a moment
        time.sleep(0.001)
    return results[0]

def look():
    tasks = os.listdir("/proc/self/task")
    return {
        "threads": len(tasks),
        "cores": [sorted(os.sched_getaffinity(int(task))) for task in tasks],
        "environment": dict(os.environ),
        "denormals": [denormals(), in_a_thread(denormals)],
        "switch interval": sys.getswitchinterval(),
        "path": list(sys.path),
        "signals": [str(signal.getsignal(number)) for number in sorted(signal.valid_signals())],
        "mask": sorted(map(int, signal.pthread_sigmask(signal.SIG_BLOCK, []))),
        "folder": os.getcwd(),
        "hooks": [str(sys.excepthook), str(threading.excepthook), str(sys.unraisablehook)],
        "descriptors": sorted(os.listdir("/proc/self/fd"), key=int),
        "umask": os.umask(0o22),
    }

def changes(before, after):
    return {key: (before[key], after[key]) for key in before if before[key] != after[key]}

os.umask(0o22)
in_a_thread(denormals)
"""

linux = pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="reads /proc")


@linux
def test_importing_changes_nothing(program, tmp_path):
    code = """
before, modules = look(), set(sys.modules)
import corenet
names = dir(corenet)
assert not changes(before, look()), changes(before, look())
new = {name.split(".")[0] for name in set(sys.modules) - modules}
assert new <= {"corenet", *sys.stdlib_module_names}, new
for heavy in ("numpy", "numba", "cffi", "psutil", "rich", "typer", "safetensors", "subprocess", "corenet.train"):
    assert heavy not in sys.modules, heavy
print(json.dumps(names))
"""
    run = program(
        code, prelude=LOOK, env={"XDG_CACHE_HOME": str(tmp_path / "cache")}, flags=["-W", "error", "-X", "dev"]
    )
    assert set(json.loads(run.succeed())) == set(corenet.__all__)
    assert not (tmp_path / "cache").exists()


@linux
def test_every_public_name_can_be_had_without_numba(program):
    code = """
import corenet
assert corenet.train.Callback and corenet.errors.ConfigError  # before anything else has imported them
for name in corenet.__all__:
    assert getattr(corenet, name) is not None
corenet.models.lenet5()
assert "numba" not in sys.modules
try:
    corenet.nonsense
except AttributeError as error:
    assert "nonsense" in str(error)
"""
    program(code, prelude=LOOK).succeed()


@linux
def test_training_changes_nothing_in_the_parent(program):
    # NumPy and its BLAS are there before; the parent itself computes nothing, so it needs no Numba.
    code = """
import gc, numpy as np, threadpoolctl
np.ones((50, 50)) @ np.ones((50, 50))
import corenet, corenet.train
from corenet import nn
x, y = np.zeros((40, 8, 8, 1), np.uint8), np.arange(40) % 10
corenet.datasets, corenet.Trainer  # modules are imported, which opens no file for good
pools = threadpoolctl.threadpool_info()
before = look()
with corenet.Trainer(corenet.models.digits_cnn(), workers=2, share_cores=True) as trainer:
    trainer.fit((x, y), validation=(x, y), callbacks=())
    trainer.predict(x)
    during = look()
assert not changes(before, look()), changes(before, look())
assert changes(before, during).keys() <= {"descriptors"}, changes(before, during)
del trainer
assert threadpoolctl.threadpool_info() == pools
assert "numba" not in sys.modules
assert np.float32(1e-40) * np.float32(1) != 0
"""
    program(code, prelude=LOOK).succeed()


@linux
def test_workers_are_bound_and_flush_to_zero_but_not_their_parent(program):
    code = """
from pathlib import Path
import numpy as np, corenet
from corenet import nn
from corenet.kernels import native
x, y = np.zeros((4, 2, 2, 1), np.uint8), np.arange(4) % 2
net = nn.Sequential(nn.Flatten(), nn.Linear(4, 2))
with corenet.Trainer(net, workers=2, share_cores=True, kernels="numpy") as trainer:
    trainer.fit((x, y), callbacks=())
    for process, cpus in zip(trainer._crew.processes, trainer.layout.cpus):
        assert os.sched_getaffinity(process.pid) == set(cpus)
        environment = Path(f"/proc/{process.pid}/environ").read_text().split("\\0")
        for setting in ("OMP_NUM_THREADS=1", "NUMBA_NUM_THREADS=1", "OPENBLAS_NUM_THREADS=1", "MKL_NUM_THREADS=1"):
            assert setting in environment, setting
        assert len(os.listdir(f"/proc/{process.pid}/task")) == 2  # the main one, and the inbox
assert not native.flush_to_zero()
assert os.environ["OMP_NUM_THREADS"] == "7" and "MKL_NUM_THREADS" not in os.environ
"""
    env = {"OMP_NUM_THREADS": "7", "NUMBA_NUM_THREADS": "2", "OPENBLAS_NUM_THREADS": "3", "MKL_NUM_THREADS": None}
    program(code, prelude=LOOK, env=env).succeed()
