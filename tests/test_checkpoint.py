"""Checkpoints: a run that goes on from one ends in the very bits of a run that was never interrupted."""

import io
import json
import os
import re
import signal
import struct
import time
import warnings
from dataclasses import replace

import numpy as np
import pytest
from conftest import CLASSES, images
from faulty import Faulty
from safetensors.numpy import save

import corenet
from corenet import nn, optim
from corenet.datasets import from_arrays
from corenet.errors import ConfigError, FileError, TrainingError
from corenet.report.console import ConsoleReport
from corenet.train import checkpoint, files, tensor_file
from corenet.train.checkpoint import BEST, LAST, PREVIOUS

OPTIMIZERS = {
    "SGD": lambda: optim.SGD(optim.Cosine(0.1, 4), momentum=0.9, nesterov=True, weight_decay=1e-4, ema=0.9),
    "Plateau": lambda: optim.SGD(optim.Plateau(0.05, patience=0, threshold=0.9), momentum=0.9),
    "Adam": lambda: optim.Adam(optim.Warmup(0.01, 2), clip_norm=1.0),
    "AdamW": lambda: optim.AdamW(0.01, ema=0.5),
    "RMSprop": lambda: optim.RMSprop(0.01, momentum=0.5),
    "Adagrad": lambda: optim.Adagrad(0.01),
    "Adadelta": lambda: optim.Adadelta(1.0),
    "LARS": lambda: optim.LARS(0.1, momentum=0.9),
    "LAMB": lambda: optim.LAMB(0.01),
}


def net() -> nn.Sequential:
    body = nn.Sequential(nn.Conv2d(2, 2, 3, padding=1, bias=False), nn.BatchNorm2d(2), nn.ReLU())
    return nn.Sequential(
        nn.Conv2d(1, 2, 3, padding=1), nn.Residual(body), nn.AvgPool2d(2), nn.Dropout(0.3), nn.Flatten(),
        nn.Linear(18, CLASSES),
    )  # fmt: skip


def data(n: int = 53, seed: int = 0, shift: int = 1):
    x, y = images(n, seed=seed)
    return replace(from_arrays(x, y, mean=0.31, std=0.27, name="corners"), shift=shift, flip=True)


def make(name: str = "SGD", **settings) -> corenet.Trainer:
    how = {"workers": 1, "share_cores": True, "kernels": "numpy", "chunk": 4, "seed": 3, **settings}
    return corenet.Trainer(net(), OPTIMIZERS[name](), **how)


def fit(trainer, epochs, **how):
    how = {"validation": data(20, seed=1), "batch_size": 8, "callbacks": (), **how}
    return trainer.fit(data(), epochs=epochs, **how)


def bits(trainer):
    """All that a run makes, but for times."""
    timeless = [{k: v for k, v in r.items() if not k.endswith(("seconds", "second"))} for r in trainer.history.epochs]
    trainer.close()
    kept = trainer._snapshot
    return timeless, trainer.epochs_done, kept.step, *(
        None if array is None else array.tobytes() for array in (kept.state, kept.slots, kept.average)
    )  # fmt: skip


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_two_epochs_and_two_more_are_four(name, tmp_path):
    with make(name) as whole:
        fit(whole, 4)
    with make(name) as half:
        fit(half, 2, checkpoint=tmp_path)
    with corenet.resume(tmp_path, workers=3, share_cores=True) as rest:
        assert rest.params_sha256() == half.params_sha256()
        history = fit(rest, 2, checkpoint=tmp_path)
        assert history["epoch"] == [1, 2, 3, 4]
    assert bits(rest) == bits(whole)


@pytest.mark.parametrize("name", ["SGD", "Plateau", "LAMB"])
@pytest.mark.parametrize("every", [1, 5])
def test_from_the_middle_of_an_epoch(name, every, tmp_path, monkeypatch):
    with make(name) as whole:
        fit(whole, 3)
    written = []
    real = checkpoint.CheckpointFolder.save

    def save_some(self, info, state, arrays, best):
        real(self, info, state, arrays, best)
        written.append((state.epochs_done, state.begun.steps))
        if len(written) == {1: 10, 5: 3}[every]:
            raise KeyboardInterrupt

    monkeypatch.setattr(checkpoint.CheckpointFolder, "save", save_some)
    with make(name, workers=2) as half, pytest.raises(KeyboardInterrupt):
        fit(half, 3, checkpoint=tmp_path, every=every)
    monkeypatch.undo()
    # 7 steps an epoch: after each, and after epochs; or after steps 5, 7 (the epoch), 10.
    assert written[-1] == {1: (1, 3), 5: (1, 3)}[every] and (1, 0) in written
    for workers in (1, 2):
        with corenet.resume(tmp_path, workers=workers, share_cores=True) as rest:
            assert rest.epochs_done == 1
            fit(rest, 2)
        assert bits(rest) == bits(whole)


def test_skipped_steps_and_user_layers(tmp_path):
    (tmp_path / "marks").mkdir()

    def of(**how):
        faulty = Faulty("backward", str(tmp_path / "marks"), 0, 3, 0)
        layers = nn.Conv2d(1, 2, 3), faulty, nn.Flatten(), nn.Linear(32, 4)
        settings = {"workers": 1, "kernels": "numpy", "chunk": 4, "nonfinite": "skip"}
        with corenet.Trainer(nn.Sequential(*layers), optim.Adam(0.01), **settings) as trainer:
            fit(trainer, 1, **how)
        return trainer

    whole = of()
    assert whole.history["skipped_steps"] == [1]
    folder = tmp_path / "run"
    of(checkpoint=folder, every=5)  # steps 5, then the epoch
    with pytest.raises(ConfigError, match="layers that are not corenet's: faulty:Faulty"):
        corenet.resume(folder / PREVIOUS)
    with corenet.resume(folder / PREVIOUS, layers=Faulty) as rest:
        fit(rest, 1)
    assert bits(rest) == bits(whole)


def test_last_previous_and_best(tmp_path):
    losses = iter((0.9, 0.5, 0.7, 0.5))
    with make() as trainer:
        trainer.evaluate = lambda held_out: {"loss": next(losses), "accuracy": 0.0}
        hashes = [(fit(trainer, 1, checkpoint=tmp_path), trainer.params_sha256())[1] for _ in range(2)]
        fit(trainer, 2, checkpoint=tmp_path)
    found = {name: corenet.resume(tmp_path / name) for name in (LAST, PREVIOUS, BEST)}
    assert {name: trainer.epochs_done for name, trainer in found.items()} == {LAST: 4, PREVIOUS: 3, BEST: 2}
    assert found[LAST].params_sha256() == trainer.params_sha256()
    assert found[BEST].params_sha256() == hashes[1]
    assert sorted(os.listdir(tmp_path)) == sorted((LAST, PREVIOUS, BEST))
    assert os.stat(tmp_path / LAST).st_nlink == 1


def test_best_is_of_the_whole_run(tmp_path):
    """Also of epochs before it was resumed; without validation the training loss decides."""
    assert checkpoint.is_best([{"loss": 1.0}]) and checkpoint.is_best([{"loss": 1.0}, {"loss": 0.9}])
    assert not checkpoint.is_best([{"loss": 0.5}, {"loss": 1.0}, {"loss": 0.9}])
    assert checkpoint.is_best([{"loss": 0.5, "val_loss": 2.0}, {"loss": 1.0, "val_loss": 1.0}])
    assert not checkpoint.is_best([{"loss": 1.0}, {"loss": 1.0}])
    none = float("nan")
    assert checkpoint.is_best([{"loss": 1.0, "val_loss": none}, {"loss": 1.0, "val_loss": 9.0}])
    assert not checkpoint.is_best([{"loss": 1.0, "val_loss": 9.0}, {"loss": 1.0, "val_loss": none}])


def test_only_the_same_run_is_resumed(tmp_path):
    with make() as trainer:
        fit(trainer, 1, checkpoint=tmp_path)
    rest = corenet.resume(tmp_path)
    x, y = images(53)
    other_pixel, other_label = data(), data()
    other_pixel.x[7, 0, 0, 0] ^= 1
    other_label.y[7] ^= 1
    wrong = {
        "batch_size of a resumed run: expected 8, as before, got 16": (data(), 16),
        "images of the data of a resumed run: expected": (other_pixel, 8),
        "targets of the data of a resumed run": (other_label, 8),
        "shift of the data of a resumed run: expected 1, as before, got 0": (data(shift=0), 8),
    }
    for message, (given, batch) in wrong.items():
        with pytest.raises(ConfigError, match=message):
            rest.fit(given, batch_size=batch, callbacks=())
    with pytest.raises(ConfigError, match=r"a setting of corenet.resume: expected one of workers, .* got seed"):
        corenet.resume(tmp_path, seed=1)
    rest.fit(data(), batch_size=8, callbacks=())
    assert rest.epochs_done == 2
    rest.fit((x, y), batch_size=16, callbacks=())  # it is resumed by now: as after any fit
    rest.close()


def interrupted(tmp_path, every=3):
    """The checkpoint of a run that was ended in its first epoch, of 7 steps."""
    with make("Adam") as half:
        fit(half, 1, checkpoint=tmp_path, every=every)
    assert corenet.resume(tmp_path / PREVIOUS).resumed.begun.steps == 6
    return tmp_path / PREVIOUS


def test_progress_counts_what_this_call_has_done(tmp_path, monkeypatch):
    """A look before the first step, and one after it: a rate of 0 would be divided by, images of before are no rate."""
    real, seen = corenet.train.session.Session.train, []

    def looks(self, job, until, skip, tick):
        tick()
        real(self, job, until, skip, tick)
        tick()

    class Note(corenet.train.Callback):
        def on_progress(self, progress):
            seen.append(progress)

    file = interrupted(tmp_path)
    monkeypatch.setattr(corenet.train.session.Session, "train", looks)
    out = io.StringIO()
    with corenet.resume(file) as rest, ConsoleReport(out, "net") as report:
        fit(rest, 1, callbacks=[Note(), report])
    assert {(p.step, p.steps, p.samples) for p in seen} == {(7, 7, 53)}
    assert seen[-1].images_per_second * seen[-1].seconds == pytest.approx(53 - 48)
    assert re.search(r"kernels ready in \d+\.\d s", out.getvalue())


def test_after_an_error_in_the_epoch_it_is_taken_up_again(tmp_path, monkeypatch):
    """By the same trainer: where the checkpoint left it, if it was resumed, or else from its beginning."""
    with make("Adam") as whole:
        fit(whole, 2)
    full = OSError(28, "No space left on device")

    def fails(*args):
        raise FileError("cannot write", got=full.strerror)

    with make("Adam") as trainer:
        monkeypatch.setattr(checkpoint.CheckpointFolder, "save", fails)
        with pytest.raises(FileError):
            fit(trainer, 2, checkpoint=tmp_path, every=2)
        monkeypatch.undo()
        assert trainer.epochs_done == 0
        fit(trainer, 2)
    assert bits(trainer) == bits(whole)
    with make("Adam") as half:
        fit(half, 1, checkpoint=tmp_path, every=2)
    copy = tmp_path / "step 6"
    (tmp_path / PREVIOUS).rename(copy)
    with corenet.resume(copy) as rest:
        real = corenet.train.session.Session.train

        def diverges(*args):
            real(*args)
            raise TrainingError("the loss")

        monkeypatch.setattr(corenet.train.session.Session, "train", diverges)
        with pytest.raises(TrainingError):
            fit(rest, 2)
        monkeypatch.undo()
        with pytest.raises(ConfigError, match="batch_size of a resumed run"):
            fit(rest, 2, batch_size=16)
        fit(rest, 2)
    assert bits(rest) == bits(whole)


def test_what_has_diverged_is_no_checkpoint(tmp_path):
    """The step that makes such parameters has a finite loss, and a checkpoint after it."""
    x, y = images(16, dtype=np.float32)
    net = nn.Sequential(nn.Flatten(), nn.Linear(36, 4))
    trainer = corenet.Trainer(net, optim.SGD(1e38), workers=1, kernels="numpy")
    with trainer, pytest.raises(TrainingError, match=r"a parameter after step 0 \(epoch 1\)"):
        trainer.fit((1000 * x, y), batch_size=8, checkpoint=tmp_path, every=1, callbacks=())
    assert not (tmp_path / LAST).exists()


@pytest.mark.parametrize("kind", [optim.Adagrad, optim.Adam, optim.RMSprop, optim.Adadelta, optim.LAMB])
def test_squares_that_overflow_go_on_as_they_are(kind, tmp_path):
    """The squares of large gradients are infinite, the parameters are not: training goes on, and so it does resumed."""
    x, _ = images(32, dtype=np.float32)
    net = nn.Sequential(nn.Flatten(), nn.Linear(36, 4))
    large = 1e4 * x, np.full((32, 4), 1e18, np.float32)
    with corenet.Trainer(net, kind(1e-3), loss="mse", workers=1, kernels="numpy") as whole:
        whole.fit(large, batch_size=8, callbacks=(), checkpoint=tmp_path)
        assert np.isinf(whole._session.snapshot().slots).any()
        whole.fit(large, batch_size=8, callbacks=())
    with corenet.resume(tmp_path) as rest:
        rest.fit(large, batch_size=8, callbacks=())
    assert bits(rest)[1:] == bits(whole)[1:]


# What can go wrong with files.


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("run")
    with make() as trainer:
        fit(trainer, 2, checkpoint=path)
    return path


def damaged(folder, tmp_path, content: bytes, older: bytes | None = None):
    path = tmp_path / "damaged"
    path.mkdir()
    (path / LAST).write_bytes(content)
    (path / PREVIOUS).write_bytes((folder / PREVIOUS).read_bytes() if older is None else older)
    return path


def changed(content: bytes, change) -> bytes:
    """With another description, whose checksum is right."""
    (length,) = struct.unpack("<Q", content[:8])
    from safetensors.numpy import load

    arrays = load(content)
    metadata = json.loads(content[8 : 8 + length])["__metadata__"]
    description = json.loads(metadata["corenet"])
    change(metadata, description, arrays)
    metadata["corenet"] = json.dumps(description)
    metadata["sha256"] = tensor_file._checksum(metadata["corenet"], arrays)
    return save(arrays, metadata=metadata)


DAMAGE = {
    "empty": (lambda c: b"", "an empty file"),
    "cut short": (lambda c: c[:-100], "a damaged file"),
    "in the header": (lambda c: c[:100], "a file cut short"),
    "a bit": (lambda c: c[:-9] + bytes([c[-9] ^ 4]) + c[-8:], "its checksum is another"),
    "HTML": (lambda c: b"<!DOCTYPE html>", "a file that begins with"),
    "a later version": (lambda c: c.replace(b"corenet checkpoint 1", b"corenet checkpoint 2"), "of a later corenet"),
    "a model": (lambda c: c.replace(b"corenet checkpoint 1", b"corenet model 1     "), "format 'corenet model 1     '"),
    "one byte more": (lambda c: c + b"0", "a damaged file, of"),
    "another shape": (lambda c: c.replace(b'"shape":[18,4]', b'"shape":[18,9]'), "a damaged file"),
}  # fmt: skip


@pytest.mark.parametrize("how", DAMAGE)
def test_damage_is_named_and_the_older_one_offered(how, folder, tmp_path):
    change, what = DAMAGE[how]
    path = damaged(folder, tmp_path, change((folder / LAST).read_bytes()))
    with pytest.raises(FileError) as caught:
        corenet.resume(path)
    message = str(caught.value)
    assert what in message and "corenet checkpoint 1" in message, message
    assert f"{path / PREVIOUS}, the one before, is sound: resume from that" in message
    assert corenet.resume(path / PREVIOUS).epochs_done == 1
    (path / PREVIOUS).write_bytes(b"no")
    with pytest.raises(FileError, match="is damaged, too: begin anew"):
        corenet.resume(path)


def test_no_memory_for_what_the_header_does_not_claim(folder, tmp_path):
    """A file that takes no space on the disk may be as long as it likes."""
    path = damaged(folder, tmp_path, (folder / LAST).read_bytes())
    size = os.path.getsize(path / LAST)
    os.truncate(path / LAST, 1 << 42)
    with pytest.raises(FileError, match=f"a damaged file, of 4,398,046,511,104 bytes where {size:,} should be"):
        corenet.resume(path)


def test_a_header_of_many_records(tmp_path):
    """What was written can be read."""
    tensor_file.write_arrays(tmp_path / "file", "thing", 1, {"records": [{"loss": 0.1}] * 1_300_000}, {})
    assert os.path.getsize(tmp_path / "file") > 16 << 20
    read, _ = tensor_file.read_arrays(tmp_path / "file", "thing", 1, lambda description: description["records"], "")
    assert len(read) == 1_300_000


def test_a_last_one_that_is_missing(folder, tmp_path):
    path = damaged(folder, tmp_path, b"")
    (path / LAST).unlink()
    with pytest.raises(FileError, match=r"cannot read checkpoint .*got no such file.*the one before, is sound"):
        corenet.resume(path)
    (path / PREVIOUS).unlink()
    with pytest.raises(FileError, match=r"no such file. Use a checkpoint"):
        corenet.resume(path)
    with pytest.raises(FileError, match=r"no such file"):
        corenet.resume(tmp_path / "nowhere")


def set_in(*path, value):
    def change(metadata, description, arrays):
        inner = description
        for key in path[:-1]:
            inner = inner[key]
        inner[path[-1]] = value

    return change


def drop(name):
    return lambda metadata, description, arrays: arrays.pop(name)


FALSE = {
    "negative steps": (set_in("progress", "step", value=-1), "a header with epochs, step"),
    "steps that are text": (set_in("progress", "epochs_done", value="2"), "a header with epochs, step"),
    "a setting that is a list": (set_in("progress", "settings", "balance", value=["equal"]), "with the settings"),
    "more steps begun than done": (set_in("progress", "begun", "steps", value=999), "with 999 steps begun of 14"),
    "a step skipped that was not begun": (set_in("progress", "begun", "skipped", value=[0]), "skipped"),
    "no data": (set_in("progress", "data", value=[]), "without the checksums of the data"),
    "records that are none": (set_in("progress", "records", value=[1]), "without the sums and records"),
    "another setting": (set_in("progress", "settings", "workers", value=9), "a header with the settings"),
    "sums of another length": (set_in("progress", "begun", "totals", value=[1.0]), "without the sums"),
    "no such kernels": (set_in("progress", "settings", "kernels", value="x"), "kernels: expected one of"),
    "an unknown layer": (set_in("model", "net", value={"type": "Nonsense"}), "is damaged"),
    "a slot less": (drop("slot 0 of 0.weight"), "'0.weight' of slot 0 of the checkpoint"),
    "a parameter less": (drop("0.weight"), "'0.weight' of the checkpoint"),
    "an array more": (lambda m, d, arrays: arrays.update(new=np.zeros(3)), "no more arrays, got new"),
    "no number": (lambda m, d, arrays: arrays["0.bias"].fill(np.nan), "finite float32"),
}  # fmt: skip


def test_more_steps_begun_than_an_epoch_has(folder, tmp_path):
    path = damaged(folder, tmp_path, b"")
    forged = changed((folder / LAST).read_bytes(), set_in("progress", "begun", "steps", value=7))
    (path / LAST).write_bytes(forged)
    with corenet.resume(path) as rest, pytest.raises(FileError, match="less than the 7 steps of an epoch begun, got 7"):
        fit(rest, 1)


@pytest.mark.parametrize("how", FALSE)
def test_false_descriptions_are_errors(how, folder, tmp_path):
    change, what = FALSE[how]
    path = damaged(folder, tmp_path, changed((folder / LAST).read_bytes(), change))
    with pytest.raises((FileError, ConfigError), match=what):
        corenet.resume(path)


def test_a_disk_that_is_full_and_folders_that_cannot_be(tmp_path, monkeypatch):
    with make() as trainer:
        fit(trainer, 1, checkpoint=tmp_path / "run")
        before = {name: (tmp_path / "run" / name).read_bytes() for name in os.listdir(tmp_path / "run")}

        def full(descriptor):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(files.os, "fsync", full)
        with pytest.raises(FileError, match=r"cannot write .*last.safetensors: got No space left on device"):
            fit(trainer, 3, checkpoint=tmp_path / "run")
        assert trainer.epochs_done == 2  # the epoch is not lost with its checkpoint
        with pytest.warns(RuntimeWarning, match="no checkpoint: cannot write .*No space left"):
            fit(trainer, 1, checkpoint=tmp_path / "run", on_checkpoint_error="warn")
        monkeypatch.undo()
        assert trainer.epochs_done == 3
        after = {name: (tmp_path / "run" / name).read_bytes() for name in os.listdir(tmp_path / "run")}
        assert after == {**before, PREVIOUS: before[LAST]}
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            fit(trainer, 1, checkpoint=tmp_path / "run", on_checkpoint_error="warn")
        (tmp_path / "file").write_text("")
        with pytest.raises(ConfigError, match=r"checkpoint: expected a folder, got .*file, which is none"):
            fit(trainer, 1, checkpoint=tmp_path / "file")
        before = trainer.epochs_done
        for action in ("stop", "warn"):  # before any work
            with pytest.raises(FileError, match=r"cannot write to the folder .*/file/below: got Not a directory"):
                fit(trainer, 1, checkpoint=tmp_path / "file" / "below", on_checkpoint_error=action)
        assert trainer.epochs_done == before
        for wrong in ({"every": 0}, {"every": 1.5}, {"on_checkpoint_error": "ignore"}):
            with pytest.raises(ConfigError, match=next(iter(wrong))):
                fit(trainer, 1, checkpoint=tmp_path / "run", **wrong)


def test_without_links_files_are_copied(tmp_path, monkeypatch):
    monkeypatch.setattr(files.os, "link", lambda *args: (_ for _ in ()).throw(OSError(1, "Operation not permitted")))
    with make() as trainer:
        fit(trainer, 2, checkpoint=tmp_path)
    assert [corenet.resume(tmp_path / name).epochs_done for name in (LAST, PREVIOUS)] == [2, 1]


PROGRAM = """
import resource
with corenet.Trainer(nn.Sequential(nn.Flatten(), nn.Linear(36, 4)), workers=1, kernels="numpy") as trainer:
    class Tell(corenet.train.Callback):
        def on_epoch(self, record, epochs):
            print(record["epoch"], flush=True)
            if {limit}:
                resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))
    try:
        trainer.fit((x, y), epochs={epochs}, batch_size=64, checkpoint="run", every=1, callbacks=[Tell()])
    except corenet.CorenetError as error:
        print(error)
"""


def test_a_limit_on_the_size_of_files(program, tmp_path):
    out = program(PROGRAM.format(limit=2000, epochs=2)).succeed()
    assert out == "1\ncannot write run/last.safetensors: got File too large. Nothing was changed\n"
    assert corenet.resume(tmp_path / "run").epochs_done == 1
    assert sorted(os.listdir(tmp_path / "run")) == sorted((LAST, PREVIOUS, BEST))
    code = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))\n" + PROGRAM
    out = program(code.format(limit=0, epochs=2)).succeed()
    assert out.endswith("of the limit on the size of files, got 2000. Raise that limit (ulimit -f)\n"), out


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_killed_at_any_time_the_last_one_is_sound(number, program, tmp_path):
    for delay in (0.0, 0.01, 0.05, 0.2):
        run = program(PROGRAM.format(limit=0, epochs=100_000))
        assert run.line()[0] == "1"
        time.sleep(delay)
        run.process.send_signal(number)
        run.end(10)
        with corenet.resume(tmp_path / "run") as rest:
            assert rest.epochs_done >= 1
        run.leave_nothing()
