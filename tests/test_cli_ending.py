"""How a command ends when it is not left alone, and what it does to the terminal."""

import os
import signal
import subprocess
import sys

import psutil
import pytest
from cli_command import LIMIT, Running, Terminal, corenet, environment, survivors

TRAIN = ("train", "digits", "--workers", 2, "--share-cores", "--kernels", "numpy", "--out", "run")
SHORT = (*TRAIN, "--epochs", 1)
LONG = (*TRAIN, "--epochs", 100_000)


@pytest.mark.parametrize("number, code, word", [
    (signal.SIGINT, 130, "interrupted"),
    (signal.SIGTERM, 143, "terminated"),
])  # fmt: skip
def test_a_signal_ends_workers_and_leaves_no_folder(number, code, word, tmp_path):
    with Running(*LONG, cwd=tmp_path) as running:
        workers = running.wait_for("epoch 1/")
        assert len(workers) == 2 and (tmp_path / "run").is_dir()
        running.process.send_signal(number)
        assert running.end() == (code, f"{word}\n")
    assert survivors(workers) == []
    assert list(tmp_path.iterdir()) == []


def test_interrupted_while_the_workers_start(tmp_path):
    # Not with warnings as errors: an interrupt between two lines may leave an object to the garbage collector.
    with Running(*LONG, cwd=tmp_path, command=[sys.executable, "-m", "corenet"]) as running:
        parent = psutil.Process(running.process.pid)
        while not (workers := parent.children()):
            assert running.process.poll() is None
        running.process.send_signal(signal.SIGINT)
        assert running.end() == (130, "interrupted\n")
    assert survivors(workers) == []
    assert list(tmp_path.iterdir()) == []


def test_a_killed_worker_is_one_line(tmp_path):
    with Running(*LONG, cwd=tmp_path) as running:
        workers = running.wait_for("epoch 1/")
        workers[1].kill()
        others = running.wait_for("worker 1 ")
        running.wait_for("epoch ")
        assert len(others) == 2 and workers[0] in others and workers[1] not in others
        running.process.send_signal(signal.SIGINT)
        assert running.end() == (130, "interrupted\n")
    assert survivors(workers + others) == []


def test_an_error_of_one_line_when_all_workers_are_killed(tmp_path):
    with Running(*LONG, cwd=tmp_path) as running:
        gone = []
        for expected in (2, 2, 1):  # of three restarts the third is the last
            workers = running.wait_for("epoch ")
            gone += workers
            assert len(workers) == expected
            for worker in workers:
                worker.kill()
        code, err = running.end()
    assert code == 2
    assert err.startswith("error: worker ") and err.count("\n") == 1
    assert f"(pid {gone[-1].pid}," in err and "SIGKILL" in err
    assert survivors(gone) == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("arguments, buffering", [
    (SHORT, {}),
    ((*SHORT, "--json"), {}),
    (("info",), {}),
    (("info",), {"PYTHONUNBUFFERED": "1"}),
    (("--help",), {}),
])  # fmt: skip
def test_a_closed_pipe_ends_it_quietly(arguments, buffering, tmp_path):
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "corenet", *map(str, arguments)]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment(**buffering), stdout=write, stderr=subprocess.PIPE, timeout=LIMIT
    )
    os.close(write)
    assert done.returncode == 141
    assert b"Traceback" not in done.stderr and b"Exception ignored" not in done.stderr


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@pytest.mark.parametrize("buffering", [{}, {"PYTHONUNBUFFERED": "1"}])
def test_a_full_disk_is_an_error_of_one_line(buffering, tmp_path):
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "corenet", "info"], cwd=tmp_path, env=environment(**buffering), stdout=full,
            stderr=subprocess.PIPE, text=True, timeout=LIMIT,
        )  # fmt: skip
    assert (done.returncode, done.stderr) == (2, "error: cannot write the output: No space left on device\n")


@pytest.mark.parametrize("closed", [">&-", ">&- 2>&-", "<&-"])
def test_it_works_without_a_standard_stream(closed, tmp_path):
    command = " ".join([sys.executable, "-m", "corenet", *map(str, SHORT), closed])
    done = subprocess.run(["sh", "-c", command], cwd=tmp_path, capture_output=True, text=True, timeout=LIMIT)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "run" / "model.safetensors").exists()


def test_an_ascii_stream_gets_what_it_can_take(tmp_path):
    env = environment(PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    done = corenet(*SHORT, cwd=tmp_path, env=env)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.isascii()
    done = corenet("train", "digits", "--model", "lenet5", cwd=tmp_path, env=env)
    assert (done.returncode, "expected 28?28?1" in done.stderr) == (2, True)


def test_a_defect_keeps_its_traceback(tmp_path):
    code = (
        "import sys, corenet.cli.info as info\n"
        "info.collect = lambda: 1 / 0\n"
        "sys.argv = ['corenet', 'info']\n"
        "import corenet.cli; corenet.cli.main()"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode == 1
    assert done.stderr.rstrip().endswith("ZeroDivisionError: division by zero")


def test_a_terminal_shows_one_bar_that_gives_way_to_lines(tmp_path):
    terminal = Terminal(*TRAIN, "--epochs", 3, cwd=tmp_path)
    assert terminal.code == 0, terminal.text
    assert terminal.after == terminal.before
    assert "\x1b[?" not in terminal.text  # neither the cursor nor another mode was changed
    screens = terminal.screens()
    bars = [[line for line in screen if "━" in line] for screen in screens]
    assert max(map(len, bars)) == 1
    seen = " ".join(line for shown in bars for line in shown)
    for part in ("compiling kernels", "epoch 1/3", "epoch 3/3", "images/s  loss", "ETA 0:0"):
        assert part in seen
    last = screens[-1]
    assert bars[-1] == []
    assert [line[:9] for line in last if line.startswith("epoch")] == ["epoch 1/3", "epoch 2/3", "epoch 3/3"]
    assert sum(line.startswith("kernels ready in") for line in last) == 1
    assert any(line.startswith("worker ") for line in last)


def test_interrupted_on_a_terminal(tmp_path):
    terminal = Terminal(*LONG, cwd=tmp_path, type_after="ETA")
    assert terminal.code == 130
    assert terminal.after == terminal.before
    last = [line for line in terminal.screens()[-1] if line]
    assert last[-1] == "interrupted"
    assert not any("━" in line for line in last)


def test_a_terminal_that_cannot_move_its_cursor_gets_lines(tmp_path):
    terminal = Terminal(*SHORT, cwd=tmp_path, term="dumb")
    assert terminal.code == 0
    assert "\x1b" not in terminal.text and "━" not in terminal.text
    lines = terminal.text.splitlines()
    assert lines[5].startswith("batch ") and lines[6].startswith("kernels ready") and lines[7].startswith("epoch 1/1")
