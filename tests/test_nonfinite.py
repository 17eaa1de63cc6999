"""A loss or a gradient that is not finite: where it came from is found, and the step can be left out."""

import re

import numpy as np
import pytest
from conftest import CLASSES, images
from faulty import Faulty

import corenet
from corenet import nn, optim
from corenet.errors import ConfigError, TrainingError


def faulty_net(folder, fault, first=4, step=3, kill=False):
    (folder / "marks").mkdir(exist_ok=True)
    return nn.Sequential(
        nn.Conv2d(1, 3, 3),
        nn.BatchNorm2d(3, sync=True),
        Faulty("SIGKILL", str(folder / "marks"), int(kill), step, first=0),
        nn.ReLU(),
        nn.Sequential(nn.Conv2d(3, 4, 3), Faulty(fault, "", 0, step, first)),
        nn.Flatten(),
        nn.Linear(16, CLASSES),
    )


def train(net, epochs=1, batch=8, n=32, workers=2, **settings):
    optimizer = settings.pop("optimizer", None) or optim.SGD(0.1, momentum=0.9, ema=0.9)
    made = {"workers": workers, "share_cores": True, "kernels": "numpy", "chunk": 4, **settings}
    with corenet.Trainer(net, optimizer, **made) as trainer:
        trainer.fit(images(n), epochs=epochs, batch_size=batch, callbacks=())
        return trainer


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("kernels", ["numpy", "numba"])
@pytest.mark.parametrize("fault, what", [("forward", "the loss"), ("backward", "a gradient")])
def test_step_chunk_and_layer_are_named(fault, what, kernels, workers, tmp_path):
    expected = f"{what} at step 3 (epoch 1): expected a finite number, got inf or NaN, first in chunk 1: "
    expected += f"layer 4.1 (Faulty), {fault}. Lower the learning rate"
    with pytest.raises(TrainingError, match=re.escape(expected)):
        train(faulty_net(tmp_path, fault), kernels=kernels, workers=workers)


def test_the_loss_itself_and_the_sum_over_chunks_are_named():
    x = np.full((8, 6, 6, 1), 3e38, np.float32)
    x[0] = 0
    net = nn.Sequential(nn.Flatten(), nn.Linear(36, CLASSES))
    with (
        corenet.Trainer(net, workers=1, kernels="numpy", chunk=4) as trainer,
        pytest.raises(TrainingError, match=r"step 0 \(epoch 1\).* first in chunk 0: layer 1 \(Linear\), forward\."),
    ):
        trainer.fit((x, np.arange(8) % 4), batch_size=8, callbacks=())
    # Every chunk's gradient of the weights is finite, their sum is not: 8 samples of 1e38, one class.
    x = np.full((8, 1, 1, 1), 1.2e38, np.float32)
    net = nn.Sequential(nn.Flatten(), nn.Linear(1, CLASSES))
    with corenet.Trainer(net, loss=nn.MSE(), workers=1, kernels="numpy", chunk=4) as trainer:
        trainer.evaluate((x, np.zeros((8, CLASSES), np.float32)))
        trainer._session._state[:] = 0
        with pytest.raises(TrainingError, match=r"a gradient at step 0 .* first in the sum over all chunks\."):
            trainer.fit((x, np.full((8, CLASSES), 8.0, np.float32)), batch_size=8, callbacks=())


def test_a_large_gradient_is_finite():
    """Though the sum of its squares is not, in float32."""
    x = np.full((8, 1, 1, 1), 1e25, np.float32)
    net = nn.Sequential(nn.Flatten(), nn.Linear(1, CLASSES, weight_init="zeros"))
    with corenet.Trainer(net, optim.SGD(1e-30), loss=nn.MSE(), workers=1, kernels="numpy") as trainer:
        trainer.fit((x, np.ones((8, CLASSES), np.float32)), batch_size=8, callbacks=())
        assert np.abs(trainer.parameters()["1.weight"]).min() > 0


@pytest.mark.parametrize("fault", ["forward", "backward"])
@pytest.mark.parametrize("optimizer", ["SGD", "Adam", "LAMB"])
def test_a_skipped_step_is_without_effect(fault, optimizer, tmp_path):
    """Epochs of one step each: four of which the last is skipped leave what three leave."""
    optimizers = {
        "SGD": optim.SGD(0.1, momentum=0.9, ema=0.9),
        "Adam": optim.Adam(0.01, clip_norm=1.0),
        "LAMB": optim.LAMB(0.01),
    }
    settings = {"batch": 16, "n": 16, "nonfinite": "skip", "optimizer": optimizers[optimizer]}
    three = train(faulty_net(tmp_path, "none"), 3, **settings)
    four = train(faulty_net(tmp_path, fault), 4, **settings)
    assert four.params_sha256() == three.params_sha256()
    assert four.history["skipped_steps"] == [0, 0, 0, 1]
    for name in ("state", "slots", "average"):
        kept = getattr(four._snapshot, name), getattr(three._snapshot, name)
        assert (kept[0] is None and kept[1] is None) or kept[0].tobytes() == kept[1].tobytes(), name
    assert four._snapshot.step == 4


def test_training_goes_on_after_it_to_the_same_bits_for_any_workers_and_deaths(tmp_path):
    def result(workers, kill=False):
        (tmp_path / f"{workers}{kill}").mkdir()
        net = faulty_net(tmp_path / f"{workers}{kill}", "backward", kill=kill)
        trainer = train(net, 2, workers=workers, nonfinite="skip")
        assert len(trainer.history.recoveries) == kill
        return trainer.params_sha256(), trainer.history["loss"], trainer.history["skipped_steps"]

    one = result(1)
    assert one[2] == [1, 0] and np.isfinite(one[1]).all()
    assert result(2) == one
    assert result(3) == one
    assert result(2, kill=True) == one  # in the very step that is skipped


def test_the_mean_loss_is_of_the_other_steps(tmp_path):
    def of(fault):
        net = nn.Sequential(nn.Flatten(), Faulty(fault, "", 0, 3, 4), nn.Linear(36, CLASSES))
        return train(net, nonfinite="skip", optimizer=optim.SGD(1e-30))

    trainer, (x, y) = of("forward"), images(32)
    used = corenet.train.run.permutation(0, 0, 32)[:24]
    with of("none") as calm:
        expected = calm.evaluate((x[used], y[used]))
    assert trainer.history["loss"] == [pytest.approx(expected["loss"], rel=1e-5)]
    assert trainer.history["accuracy"] == [pytest.approx(expected["accuracy"])]
    assert "skipped_steps" not in train(faulty_net(tmp_path, "none")).history.epochs[0]


def test_the_setting_is_checked():
    with pytest.raises(ConfigError, match="nonfinite: expected one of 'stop', 'skip', got 'ignore'"):
        corenet.Trainer(nn.Sequential(nn.Flatten(), nn.Linear(1, 1)), nonfinite="ignore")
