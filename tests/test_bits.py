"""The same bits whatever the workers and threads: parameters, running statistics, losses, accuracies, predictions.

Every case is trained on one worker with one thread, and on each other crew; nothing may differ, not even the last bit.
The cases are small, and each has something that could depend on who computes: slices that do not divide evenly, more
workers than chunks, shards of dense weights, statistics, random masks, random shifts.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from conftest import CLASSES, images

import corenet
from corenet import nn, optim
from corenet.datasets import Dataset, from_arrays
from corenet.kernels import native
from corenet.optim import Cosine

# Workers, threads of each. Two workers come first, so that two compile what is not in the cache.
CREWS = [(2, 1), (2, 2), (3, 1), (4, 1), (1, 2), (1, 1)]


def plain() -> nn.Sequential:
    """Its first dense layer's weights are three blocks of rows, so that three workers own one each."""
    return nn.Sequential(
        nn.Conv2d(1, 5, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(45, 140), nn.ReLU(), nn.Linear(140, CLASSES),
    )  # fmt: skip


def norm() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(4), nn.ReLU(),
        nn.Flatten(), nn.Linear(36, CLASSES),
    )  # fmt: skip


def norm_of_the_batch() -> nn.Sequential:
    """Five layers in which all chunks meet, one of them the first of the net, and one in which they do not."""
    body = nn.Sequential(nn.Conv2d(3, 3, 3, padding=1, bias=False), nn.BatchNorm2d(3, sync=True), nn.ReLU())
    shortcut = nn.Sequential(nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3, sync=True))
    return nn.Sequential(
        nn.BatchNorm2d(1, sync=True), nn.Conv2d(1, 3, 3, bias=False), nn.BatchNorm2d(3, sync=True), nn.ReLU(),
        nn.Residual(body, shortcut), nn.BatchNorm2d(3), nn.Flatten(), nn.Dropout(0.2), nn.Linear(48, 9),
        nn.BatchNorm1d(9, sync=True), nn.ReLU(), nn.Linear(9, CLASSES),
    )  # fmt: skip


def dropout() -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(1, 3, 3), nn.Dropout(0.25), nn.Flatten(), nn.Dropout(0.5), nn.Linear(48, CLASSES))


def everything() -> nn.Sequential:
    body = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.2))
    shortcut = nn.Sequential(nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4))
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.Residual(body, shortcut), nn.ReLU(), nn.Residual(nn.Conv2d(4, 4, 1)),
        nn.AvgPool2d(2), nn.Flatten(), nn.Dropout(0.5), nn.Linear(36, CLASSES),
    )  # fmt: skip


@dataclass(frozen=True)
class Case:
    net: Callable[[], nn.Sequential]
    optimizer: optim.Optimizer = field(default_factory=lambda: optim.SGD(0.1))
    n: int = 101
    batch: int = 16
    dtype: Any = np.uint8
    augment: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)

    def data(self) -> Dataset:
        x, y = images(self.n, self.dtype)
        return from_arrays(x, y, mean=0.3, std=0.25).with_augmentation(**self.augment)

    def train(self, trainer: Callable[..., corenet.Trainer], epochs: int = 2, **settings: Any) -> dict[str, Any]:
        """Train, and everything to be compared."""
        made = trainer(self.net(), self.optimizer, **{**self.settings, **settings})
        return self.go_on(made, epochs)

    def go_on(self, made: corenet.Trainer, epochs: int) -> dict[str, Any]:
        held_out = images(37, self.dtype, seed=1)
        made.fit(self.data(), epochs=epochs, batch_size=self.batch, validation=held_out, callbacks=())
        return {**learned(made), **{name: made.history[name] for name in CURVES}}


CURVES = ("loss", "accuracy", "val_loss", "val_accuracy")


CASES = {
    "plain": Case(plain),
    "plain, float32": Case(plain, dtype=np.float32),
    "momentum": Case(plain, optim.SGD(0.05, momentum=0.9, weight_decay=1e-3)),
    "nesterov": Case(norm, optim.SGD(Cosine(0.05, 2), momentum=0.9, nesterov=True)),
    "Adam": Case(plain, optim.Adam(0.01)),
    "clipped, in groups, averaged": Case(
        plain,
        optim.SGD(0.1, 0.9, 1e-3, groups=[optim.NO_DECAY, optim.Group("0.*", lr_scale=0.5)], clip_value=0.01,
                  clip_norm=0.05, ema=0.9),
    ),
    "LARS": Case(plain, optim.LARS(1.0, weight_decay=1e-3, groups=[optim.NO_DECAY])),
    "LAMB, clipped": Case(everything, optim.LAMB(0.01, clip_norm=0.1)),
    "RMSprop, centred": Case(norm, optim.RMSprop(1e-3, momentum=0.5, centered=True)),
    "BatchNorm2d": Case(norm, batch=40),
    "BatchNorm2d, chunk by hand": Case(norm, optim.Adam(0.01), settings={"chunk": 5}),
    "BatchNorm of the batch": Case(norm_of_the_batch, optim.SGD(0.05, momentum=0.9), settings={"chunk": 3}),
    "BatchNorm of the batch, many chunks": Case(
        norm_of_the_batch, optim.Adam(0.01), batch=50, dtype=np.float32, augment={"flip": True}, settings={"chunk": 4},
    ),
    "BatchNorm of a batch of one chunk": Case(norm_of_the_batch, batch=4, n=17, settings={"chunk": 4}),
    "Dropout": Case(dropout),
    "Dropout, float32, chunk by hand": Case(dropout, dtype=np.float32, settings={"chunk": 3}),
    "augmentation": Case(plain, augment={"shift": 2, "flip": True}),
    "augmentation, float32": Case(norm, dtype=np.float32, augment={"shift": 1}),
    "everything": Case(everything, optim.Adam(0.01), augment={"shift": 1, "flip": True}),
    "everything, many chunks": Case(
        everything, optim.SGD(0.05, 0.9, nesterov=True), batch=50, dtype=np.float32, augment={"flip": True},
        settings={"chunk": 4},
    ),
    "a batch of two": Case(everything, batch=2, n=31),
    "a batch of one": Case(dropout, batch=1, n=11),
    "one batch, larger than the set": Case(plain, n=20, batch=64),
    "chunk larger than the batch": Case(norm, batch=6, settings={"chunk": 64}),
    "one sample": Case(everything, n=1, batch=4),
}  # fmt: skip


def learned(trainer: corenet.Trainer) -> dict[str, Any]:
    """All that training leaves behind, to the last bit."""
    arrays = {name: array.tobytes() for name, array in trainer.parameters().items()}
    predictions = {
        np.dtype(t).name: trainer.predict(images(50, t, seed=2)[0]).tobytes() for t in (np.uint8, np.float32)
    }
    return {"sha256": trainer.params_sha256(), **arrays, **predictions}


def differing(a: dict[str, Any], b: dict[str, Any]) -> list[str]:
    """The names of all that is not the same."""
    assert a.keys() == b.keys()
    return [name for name in a if a[name] != b[name]]


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_workers_and_threads_leave_no_trace(trainer, case):
    results = {(w, t): case.train(trainer, workers=w, threads=t) for w, t in CREWS}
    alone = results[1, 1]
    assert np.isfinite([*alone["loss"], *alone["val_loss"]]).all()
    assert {crew: names for crew, other in results.items() if (names := differing(alone, other))} == {}


@pytest.mark.parametrize(
    "name", ["everything", "Dropout, float32, chunk by hand", "a batch of two", "BatchNorm of the batch"]
)
def test_numpy_kernels_too(trainer, name):
    alone = CASES[name].train(trainer, kernels="numpy")
    for workers in (2, 3):
        assert differing(alone, CASES[name].train(trainer, kernels="numpy", workers=workers)) == []


@pytest.mark.parametrize("name", ["plain", "everything, many chunks"])
def test_numpy_and_numba_train_the_same_net(trainer, name):
    # Not the same bits, since NumPy sums in another order; after two epochs they are still close.
    a, b = (CASES[name].train(trainer, kernels=kernels) for kernels in ("numpy", "numba"))
    assert a["loss"] == pytest.approx(b["loss"], rel=1e-3)
    for same in ("uint8", "float32"):
        np.testing.assert_allclose(np.frombuffer(a[same], "f4"), np.frombuffer(b[same], "f4"), rtol=0, atol=2e-3)


@pytest.mark.skipif(not native.tiles() or native.tile().name == "baseline", reason="no C tile that rounds as Numba's")
@pytest.mark.parametrize("name", ["plain", "everything, many chunks"])
def test_c_kernels_leave_no_trace_either(trainer, name):
    alone = CASES[name].train(trainer, kernels="numba")
    for workers in (2, 1):
        assert differing(alone, CASES[name].train(trainer, kernels="c", workers=workers)) == []


def test_again_is_the_same_and_another_seed_is_not(trainer):
    case = CASES["everything"]
    first = case.train(trainer, workers=2)
    assert differing(first, case.train(trainer, workers=2)) == []
    other, last = (case.train(trainer, workers=2, seed=seed) for seed in (1, 2**63 - 1))
    for one, another in ((first, other), (first, last), (other, last)):
        assert {"sha256", "loss", "uint8", "float32", "1.body.1.running_mean"} <= set(differing(one, another))
    assert differing(last, case.train(trainer, workers=3, seed=2**63 - 1)) == []


@pytest.mark.parametrize(
    "change",
    [{"augment": {"shift": 1}}, {"augment": {"flip": True}}, {"settings": {"chunk": 2}}, {"batch": 20}],
    ids=str,
)
def test_what_does_change_the_result(trainer, change):
    """Otherwise the tests above might compare nets on which these have no effect."""
    assert "sha256" in differing(Case(everything).train(trainer), Case(everything, **change).train(trainer))


@pytest.mark.parametrize("net, augment", [(dropout, {}), (plain, {"shift": 2}), (plain, {"flip": True})])
def test_every_epoch_draws_anew(trainer, net, augment):
    # A rate too small to change a float32, and one batch per epoch: what differs is what is drawn. Five digits, so that
    # it is not the order of summation.
    losses = Case(net, optim.SGD(1e-30), augment=augment, batch=101).train(trainer, 4)["loss"]
    assert len({f"{loss:.5f}" for loss in losses}) == 4


@pytest.mark.parametrize("name", ["everything", "momentum", "nesterov", "clipped, in groups, averaged"])
def test_four_epochs_are_twice_two(trainer, name):
    case = CASES[name]
    whole = case.train(trainer, 4, workers=2)
    made = trainer(case.net(), case.optimizer, **case.settings, workers=2)
    first, second = case.go_on(made, 2), case.go_on(made, 2)
    assert made.history["epoch"] == [3, 4]
    assert differing(whole, {**second, **{name: first[name] + second[name] for name in CURVES}}) == []


@pytest.mark.parametrize("name, workers", [("everything", 1), ("everything", 3), ("clipped, in groups, averaged", 2)])
def test_closing_in_between_loses_nothing(trainer, name, workers):
    case = CASES[name]
    whole = case.train(trainer, 4)
    made = trainer(case.net(), case.optimizer, workers=workers)
    case.go_on(made, 1)
    assert made._session.step % 2 == 1  # of the two copies of everything, the second is the latest
    there = made.params_sha256()
    for _ in range(2):
        made.close()
        assert made.params_sha256() == there
    second = case.go_on(made, 3)
    made.close()
    assert differing(whole, {**second, **{name: whole[name] for name in CURVES}}) == []
    assert second["loss"] == whole["loss"][1:]


def test_saved_and_loaded_it_goes_on_the_same_on_any_workers(trainer, crews, tmp_path):
    # The file has no momentum, so this is not the run without a break; but it is one run, whoever goes on with it.
    case, path = CASES["everything"], tmp_path / "model.safetensors"
    made = trainer(case.net(), case.optimizer)
    case.go_on(made, 1)
    made.save(path)
    after = []
    for workers in (1, 2, 3):
        loaded = corenet.load(path, workers=workers, share_cores=True)
        loaded._crew = crews(loaded.layout, loaded.kernels)
        after.append(case.go_on(loaded, 2))
        loaded._crew = loaded._session = None
    assert differing(after[0], after[1]) == differing(after[0], after[2]) == []


def test_numbers_next_to_nothing_are_the_same_on_every_thread(trainer):
    """Weights that start at 0 and move by less than the least normal number: flushed to 0 everywhere, or nowhere."""
    x, y = images(16, np.float32, shape=(20, 20, 1))  # 400 rows of weights: all workers own some
    x *= np.float32(1e-37)
    moved = {}
    for workers, threads in CREWS:
        made = trainer(
            nn.Sequential(nn.Flatten(), nn.Linear(400, CLASSES)), optim.SGD(1e-3), workers=workers, threads=threads
        )
        made.evaluate((x, y))
        made._session._state[:] = 0
        made.fit((x, y), batch_size=8, callbacks=())
        moved[workers, threads] = made.parameters()["1.weight"]
    for crew, weights in moved.items():
        assert (weights == (0 if native.available else moved[1, 1])).all(), crew
