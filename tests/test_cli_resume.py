"""corenet train --checkpoint and --resume: a run that was ended in any way goes on to the same bits."""

import json
import os
import signal

import pytest
from cli_command import Running, corenet, survivors

from corenet import resume
from corenet.cli.ending import run

TRAIN = ("train", "digits", "--kernels", "numpy", "--share-cores", "--batch-size", 100)
LAST, PREVIOUS = "last.safetensors", "previous.safetensors"


def result(*arguments, cwd):
    done = corenet(*arguments, "--json", cwd=cwd)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return result(*TRAIN, "--epochs", 6, cwd=tmp_path_factory.mktemp("whole"))


@pytest.mark.parametrize("number, code", [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)])
def test_it_goes_on_where_a_signal_ended_it(number, code, whole, tmp_path):
    with Running(*TRAIN, "--epochs", 6, "--checkpoint", "kept", "--every", 3, "--out", "out", cwd=tmp_path) as running:
        workers = running.wait_for("epoch 3/6")
        running.process.send_signal(number)
        assert running.end()[0] == code
    assert survivors(workers) == []
    assert {LAST, PREVIOUS, "best.safetensors", "settings.json"} <= set(os.listdir(tmp_path / "kept"))
    for resumed in ("kept", f"kept/{LAST}"):
        rest = result("train", "--resume", resumed, "--workers", 1, "--overwrite", cwd=tmp_path)
        assert (rest["params_sha256"], rest["test_loss"]) == (whole["params_sha256"], whole["test_loss"])
        assert (rest["workers"], rest["epochs"], rest["out"]) == (1, 6, "out")
        history = json.loads((tmp_path / "out" / "history.json").read_text())
        assert [record["epoch"] for record in history["epochs"]] == [1, 2, 3, 4, 5, 6]
        samples = history["workers"][0]["samples"]  # in the epoch that had begun, fewer than there are
        assert rest["images_per_second"] == pytest.approx(samples / rest["seconds_train"])
        if resumed == "kept":  # by now the run is complete: go on from an older one
            (tmp_path / "kept" / PREVIOUS).replace(tmp_path / "kept" / LAST)


def test_a_disk_that_gets_full_ends_the_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    before = signal.getsignal(signal.SIGTERM)
    real, calls = os.fsync, iter(range(100))

    def full(descriptor):
        if next(calls) >= 3:
            raise OSError(28, "No space left on device")
        real(descriptor)

    monkeypatch.setattr("corenet.train.files.os.fsync", full)
    arguments = [*TRAIN, "--epochs", 2, "--workers", 1, "--checkpoint", "kept", "--every", 4, "--out", "out"]
    assert run([str(argument) for argument in arguments]) == 2
    signal.signal(signal.SIGTERM, before)
    expected = f"error: cannot write kept/{LAST}: got No space left on device. Nothing was changed\n"
    assert capsys.readouterr().err == expected
    monkeypatch.undo()
    assert resume(tmp_path / "kept").resumed.begun.steps == 8
    assert not (tmp_path / "out").exists()


def test_mistakes_are_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    before = signal.getsignal(signal.SIGTERM)

    def fails(*arguments):
        """In this process, which is faster; before any worker starts."""
        assert run([str(argument) for argument in arguments]) == 2
        signal.signal(signal.SIGTERM, before)
        text = capsys.readouterr().err
        assert text.startswith("error: ") and text.count("\n") == 1, text
        return text

    result(*TRAIN, "--epochs", 2, "--checkpoint", "kept", "--out", "out", cwd=tmp_path)
    assert "expected a run with epochs left, got all 2 epochs done" in fails("train", "--resume", "kept")
    assert "--checkpoint kept: expected a new folder" in fails(*TRAIN, "--checkpoint", "kept")
    for option in (("digits",), ("--seed", 1), ("--epochs", 9), ("--checkpoint", "x"), ("--every", 2)):
        name = option[0] if option[0] != "digits" else "dataset"
        assert f"no option that is part of the run, got {name}" in fails("train", "--resume", "kept", *option)
    assert "expected settings.json there, got none" in fails("train", "--resume", "nowhere")
    assert "--every: expected a --checkpoint DIR with it" in fails(*TRAIN, "--every", 2)
    assert "--every: expected a number of at least 1" in fails(*TRAIN, "--checkpoint", "x", "--every", 0)
    (tmp_path / "file").write_text("")
    assert "checkpoint: expected a folder, got file, which is none" in fails(*TRAIN, "--checkpoint", "file")
    last = tmp_path / "kept" / LAST
    last.write_bytes(last.read_bytes()[:1000])
    assert "the one before, is sound: resume from that" in fails("train", "--resume", "kept")
    assert result("train", "--resume", f"kept/{PREVIOUS}", "--out", "again", cwd=tmp_path)["epochs"] == 2
    settings = tmp_path / "kept" / "settings.json"
    sound = settings.read_text()
    for text in (
        "",
        "{",
        "[]",
        "{}",
        sound.replace('"epochs": 2', '"epochs": "2"'),
        sound.replace('"adam"', "7"),
        "\0",
    ):
        settings.write_text(text)
        assert "settings.json is damaged" in fails("train", "--resume", "kept") or text == sound
    result(*TRAIN, "--epochs", 1, "--checkpoint", "kept", "--out", "third", "--overwrite", cwd=tmp_path)
    assert sorted(os.listdir(tmp_path / "kept")) == ["best.safetensors", LAST, "settings.json"]
