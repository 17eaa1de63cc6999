"""Parts of the command line by themselves: what is imported when, names, clocks, JSON."""

import json
import math
import subprocess
import sys
import time
from datetime import datetime

import numpy as np
import pytest

import corenet
from corenet import nn
from corenet.cli import options, run_folder, started
from corenet.cli.output import to_json
from corenet.errors import ConfigError


def test_the_workers_start_before_the_data_are_read(monkeypatch, tmp_path):
    from corenet.cli import train
    from corenet.cli.settings import Settings

    events = []

    class Stop(Exception):
        pass

    def read(self):
        events.append("data")
        raise Stop

    monkeypatch.setattr(train.Trainer, "__enter__", lambda self: events.append("workers"))
    monkeypatch.setattr(train.Source, "read", read)
    with pytest.raises(Stop):
        train.train(
            Settings(
                dataset="digits",
                model=None,
                epochs=1,
                batch_size=1,
                optimizer="adam",
                lr=None,
                workers="1",
                threads=1,
                chunk="auto",
                seed=0,
                kernels="auto",
                precision="float32",
                share_cores=False,
                out=tmp_path / "run",
                overwrite=False,
                checkpoint=None,
                every=None,
                resume=None,
                json=True,
            )
        )
    assert events == ["workers", "data"]
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("module, unwanted", [
    ("corenet.cli", {"numpy", "typer", "rich", "numba"}),
    ("corenet.cli.app", {"numpy", "numba", "corenet.train"}),
    ("corenet.cli.train", {"numba", "rich", "matplotlib", "PIL", "typer"}),
    ("corenet.report.console", {"numba", "matplotlib", "PIL"}),
    ("corenet.report.plots", {"matplotlib", "rich"}),
])  # fmt: skip
def test_nothing_slow_is_imported_before_it_is_needed(module, unwanted):
    code = f"import sys, {module}; print(*sys.modules)"
    loaded = set(
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    )
    assert module in loaded
    assert not loaded & unwanted


def test_curves_do_not_touch_pyplot():
    code = (
        "import sys; from corenet.report.plots import draw_curves; from corenet.train import History\n"
        "draw_curves(History([{'epoch': 1, 'loss': 1.0, 'accuracy': 0.5}]), 'title')\n"
        "assert 'matplotlib.figure' in sys.modules and 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_runs_of_the_same_second_have_folders_of_their_own(monkeypatch, tmp_path):
    class Noon(datetime):
        @classmethod
        def now(cls, tz=None):
            return cls(2024, 5, 6, 12)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(run_folder, "datetime", Noon)
    folders = []
    for _ in range(3):
        folders.append(run_folder.default_folder("stars", "keras_mnist"))
        folders[-1].mkdir(parents=True)
    name = "runs/stars-keras_mnist-20240506-120000"
    assert [str(folder) for folder in folders] == [name, f"{name}-2", f"{name}-3"]


def test_json_has_neither_nan_nor_infinity():
    def refuse(name):
        raise AssertionError(f"{name} is no JSON")

    given = {"a": math.nan, "b": [1.5, -math.inf, {"c": math.inf}], "d": (2, "NaN", None)}
    text = to_json(given)
    assert json.loads(text, parse_constant=refuse) == {"a": None, "b": [1.5, None, {"c": None}], "d": [2, "NaN", None]}


def test_time_counts_from_the_start_of_the_process():
    code = "import time; time.sleep(0.3); from corenet.cli import started as s; print(s.seconds_since_start())"
    before = time.monotonic()
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert 0.29 < float(said) < time.monotonic() - before + 0.02  # the kernel's ticks are 10 ms


def test_time_without_the_kernels_own_clock(monkeypatch):
    monkeypatch.delattr(time, "CLOCK_BOOTTIME")
    assert started.seconds_since_start() >= 0


def test_commands_refuse_models_that_do_not_name_one_class_per_image(tmp_path):
    x = np.random.default_rng(0).random((8, 3, 3, 1)).astype(np.float32)
    nets = {
        r"\(1,\) for loss 'mse'": (nn.Sequential(nn.Flatten(), nn.Linear(9, 1)), "mse", np.zeros(8)),
        r"\(3, 3, 2\) for loss 'cross_entropy'": (nn.Conv2d(1, 2, 1), "cross_entropy", np.zeros((8, 3, 3), int)),
    }
    for message, (net, loss, y) in nets.items():
        with corenet.Trainer(net, loss=loss, workers=1, kernels="numpy") as trainer:
            trainer.fit((x, y), callbacks=())
            trainer.save(tmp_path / "model.safetensors")
        with pytest.raises(ConfigError, match=f"expected one class per image, got outputs of shape {message}"):
            options.load_classifier(tmp_path / "model.safetensors")
