"""The console report fed by hand, and the curves."""

import io
import re
import sys

import numpy as np
import pytest
from cli_command import CONTROL

from corenet.errors import MissingExtraError
from corenet.report.console import ConsoleReport, minutes
from corenet.report.machine import cpu_model
from corenet.report.plots import draw_curves
from corenet.train import History
from corenet.train.callback import Progress, RunInfo
from corenet.train.history import WorkerRecord

INFO = RunInfo(
    data="stars", samples=100, epochs=2, batch_size=10, chunk=5, workers=2, threads=1, layout="2 workers, because",
    kernels="some kernels", parameters=12345,
)  # fmt: skip


def record(epoch: int, **more: float) -> dict:
    return {"epoch": epoch, "loss": 1.5 / epoch, "accuracy": 0.5, "seconds": 0.0, "images_per_second": 25.0, **more}


class FakeTerminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch) -> FakeTerminal:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "100")
    return FakeTerminal()


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def history(epochs: int = 2, **more: float) -> History:
    workers = [WorkerRecord(0, (0, 1), 150, 3.0, 1.0), WorkerRecord(1, (2,), 50, 1.0, 0.0)]
    return History([record(n + 1, **more) for n in range(epochs)], workers)


def test_a_log_has_lines_only():
    file = io.StringIO()
    with ConsoleReport(file, "net") as report:
        report.on_start(INFO)
        report.on_compile(1, 2)
        report.on_compile(2, 2)
        report.on_progress(Progress(1, 5, 10, 50, 1.5, 1e9, 0.0))
        report.on_epoch(record(1, val_loss=1.0, val_accuracy=0.25), 2)
        report.on_epoch(record(2), 2)
        report.on_end(history())
    text = file.getvalue()
    assert not CONTROL.search(text)
    lines = text.splitlines()
    assert lines[1:6] == [
        "kernels  some kernels",
        "workers  2 workers, because",
        "data     stars, 100 images to train on",
        "model    net, 12,345 parameters",
        "batch    10 in chunks of 5, 2 epochs",
    ]
    assert re.fullmatch(r"machine  .+, \d+ usable cores?", lines[0])
    assert re.fullmatch(r"kernels ready in \d+\.\d s", lines[6])
    assert lines[7] == "epoch 1/2  loss 1.5000  accuracy 50.00%  validation loss 1.0000  accuracy 25.00%  25 images/s"
    assert lines[8] == "epoch 2/2  loss 0.7500  accuracy 50.00%  25 images/s"
    assert len(lines) == 14


def test_the_table_says_who_computed_and_who_waited():
    file = io.StringIO()
    ConsoleReport(file, "net").on_end(history())
    rows = [line.split() for line in file.getvalue().splitlines()]
    assert rows[1] == ["worker", "core", "samples", "share", "computing", "waiting", "waiting", "%"]
    assert rows[3] == ["0", "0,", "1", "150", "75.0%", "3.00", "s", "1.00", "s", "25.0%"]
    assert rows[4] == ["1", "2", "50", "25.0%", "1.00", "s", "0.00", "s", "0.0%"]


def test_a_worker_without_work_is_shown_too():
    file = io.StringIO()
    ConsoleReport(file, "net").on_end(History(workers=[WorkerRecord(0, (0,))]))
    assert file.getvalue().split()[-8:] == ["0", "0", "0", "0.0%", "0.00", "s", "0.00", "s", "0.0%"][-8:]


def test_the_bar_shows_rate_loss_and_the_time_left_of_all_epochs(terminal):
    with ConsoleReport(terminal, "net") as report:
        report.on_start(INFO)
        report.on_compile(3, 7)
        report.on_progress(Progress(1, 5, 10, 50, 1.5, 25.0, 2.0))
        report.on_epoch(record(1), 2)
        report.on_progress(Progress(2, 5, 10, 50, 1.25, 2500.0, 0.02))
    text = plain(terminal.getvalue())
    assert re.search(r"compiling kernels 3/7 .* \d s", text)
    assert re.search(r"epoch 1/2 .*25 images/s  loss 1\.5000  ETA 0:06", text)
    assert re.search(r"epoch 2/2 .*2,500 images/s  loss 1\.2500  ETA 0:00", text)


def test_epochs_of_a_second_fit_count_on_in_the_bar_and_in_the_lines(terminal):
    with ConsoleReport(terminal, "net") as report:
        report.on_start(INFO)
        report.on_progress(Progress(11, 5, 10, 50, 1.5, 25.0, 2.0))
        report.on_epoch(record(11), 12)
    text = plain(terminal.getvalue())
    assert re.search(r"epoch 11/12 .*25 images/s  loss 1\.5000  ETA 0:06", text)
    assert "epoch 11/12  loss 0.1364" in text


def test_an_error_takes_the_bar_away(terminal):
    out, err = sys.stdout, sys.stderr
    with pytest.raises(ZeroDivisionError), ConsoleReport(terminal, "net") as report:
        report.on_start(INFO)
        report.on_progress(Progress(1, 5, 10, 50, 1.5, 25.0, 2.0))
        raise ZeroDivisionError
    assert terminal.getvalue().endswith("\r\x1b[1A\x1b[2K")
    assert (sys.stdout, sys.stderr) == (out, err)
    assert "\x1b[?25l" not in terminal.getvalue()


@pytest.mark.parametrize("seconds, text", [(0, "0:00"), (9.6, "0:10"), (59.6, "1:00"), (3725, "62:05")])
def test_minutes(seconds, text):
    assert minutes(seconds) == text


@pytest.mark.parametrize("text, name", [
    ("processor\t: 0\nmodel name\t: Some  CPU @ 2 GHz\nmodel name\t: another\n", "Some CPU @ 2 GHz"),
    ("processor\t: 0\n\nHardware : x\nModel\t\t: A Small Board\n", "A Small Board"),
])  # fmt: skip
def test_the_name_of_the_cpu(text, name, tmp_path):
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc" / "cpuinfo").write_text(text)
    assert cpu_model(tmp_path) == name


def test_a_cpu_without_a_name(tmp_path):
    assert cpu_model(tmp_path)


def pixels(png: bytes) -> np.ndarray:
    return np.asarray(pytest.importorskip("PIL.Image").open(io.BytesIO(png)).convert("RGB"), int)


@pytest.mark.parametrize("epochs", [1, 2, 60])
def test_curves_are_a_picture_of_both_sets(epochs):
    pytest.importorskip("matplotlib")
    both = pixels(draw_curves(history(epochs, val_loss=0.3, val_accuracy=0.9), "title", "test"))
    one = pixels(draw_curves(history(epochs), "title"))
    assert both.shape == one.shape and both.shape[1] >= 1000
    red, blue = (both[..., 0] - both[..., 2] > 60).sum(), (both[..., 2] - both[..., 0] > 60).sum()
    assert min(red, blue) > 100
    assert (one[..., 0] - one[..., 2] > 60).sum() < red / 10


def test_without_matplotlib_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtraError, match=r"^curves need Matplotlib. Install it: pip install 'corenet\[plot\]'$"):
        draw_curves(history(), "title")
