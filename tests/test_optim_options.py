"""Options of all optimizers, through training: groups, clipping, averaged weights; against PyTorch's rules by hand."""

import numpy as np
import pytest
from conftest import CLASSES, Ranks, images

from corenet import Trainer, nn, optim
from corenet.errors import ConfigError
from corenet.parallel.balance import Equal
from corenet.parallel.shards import make_blocks, make_shard


def net() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(48, 70), nn.Linear(70, CLASSES)
    )


def steps(optimizer: optim.Optimizer, workers: int = 2) -> tuple[Ranks, dict[str, np.ndarray], dict[str, np.ndarray]]:
    """One step on a batch: the ranks, the parameters before, and those after."""
    x, y = images(16, np.float32)
    ranks = Ranks(net(), optimizer, x, y, chunk=4, batch=16, workers=workers, balancer=Equal(), kernels="numpy")
    before = {name: array.copy() for name, array in ranks.state().items()}
    ranks.epoch()
    return ranks, before, {name: array.copy() for name, array in ranks.state().items()}


def test_plateau_follows_the_training(trainer):
    """Nothing ever improves by a factor of ten, so the rate falls after every epoch but the first."""
    data, rates = images(40, np.float32), [0.1, 0.1, 0.05, 0.025]
    schedules = (
        optim.Plateau(0.1, factor=0.5, patience=0, threshold=10),
        optim.MultiStep(0.1, [2, 3], 0.5),
        optim.Plateau(0.1, factor=0.5, patience=0, threshold=10, mode="max"),
    )
    hashes = []
    for schedule in schedules:
        one = trainer(net(), optim.SGD(schedule), workers=2)
        one.fit(data, epochs=2, batch_size=16, callbacks=())
        first = one.history["learning_rate"]
        one.fit(data, epochs=2, batch_size=16, callbacks=(), validation=data)
        assert first + one.history["learning_rate"] == pytest.approx(rates)
        hashes.append(one.params_sha256())
    assert len(set(hashes)) == 1
    assert schedules[0].rate(0) == 0.1, "the caller's own object was changed"


def test_plateau_watches_validation_where_there_is_one():
    plateau = optim.Plateau(1.0, patience=0)
    plateau.observe({"loss": 1.0, "val_loss": 1.0})
    plateau.observe({"loss": 0.1, "val_loss": 2.0})
    assert plateau.rate(0) == pytest.approx(0.1)
    with pytest.raises(ConfigError, match=r"a loss that knows an accuracy.*got MSE\(\).*min"):
        Trainer(net(), optim.SGD(optim.Warmup(optim.Plateau(1.0, mode="max"), 2)), "mse")


def parameters(ranks: Ranks) -> list[str]:
    return [entry.name for entry in ranks.plan.layout.parameters]


def test_groups_change_decay_and_rate():
    groups = [optim.NO_DECAY, optim.Group("4.*", lr_scale=0.5)]
    ranks, before, after = steps(optim.SGD(0.1, weight_decay=0.3, groups=groups))
    gradient = ranks.gradient()
    for name in parameters(ranks):
        decay = 0.0 if before[name].ndim <= 1 else 0.3
        rate = 0.05 if name.startswith("4.") and before[name].ndim > 1 else 0.1  # the first group that matches counts
        expected = before[name] - rate * (gradient[name] + decay * before[name])
        np.testing.assert_allclose(after[name], expected, rtol=1e-5, atol=1e-7, err_msg=name)


def test_values_are_clipped():
    ranks, before, after = steps(optim.SGD(1.0, clip_value=1e-3))
    moved = np.concatenate([(before[name] - after[name]).ravel() for name in parameters(ranks)])
    assert np.abs(moved).max() <= 1e-3 * (1 + 1e-3) and (np.abs(moved) > 0.99e-3).sum() > 10


@pytest.mark.parametrize("workers", [1, 3])
def test_the_whole_gradient_is_clipped_to_one_norm(workers):
    free, *_ = steps(optim.SGD(1.0), workers)
    whole = np.concatenate([free.gradient()[name].ravel() for name in parameters(free)]).astype(np.float64)
    for limit in (np.linalg.norm(whole) / 3, 2 * np.linalg.norm(whole)):
        ranks, before, after = steps(optim.SGD(1.0, clip_norm=float(limit)), workers)
        moved = np.concatenate([(before[name] - after[name]).ravel() for name in parameters(ranks)])
        expected = whole * min(1.0, limit / np.linalg.norm(whole))
        np.testing.assert_allclose(moved, expected, rtol=1e-3, atol=1e-6)


def test_averaged_weights_follow():
    ranks, _before, after = steps(optim.SGD(1.0, ema=0.75))
    average = ranks.plan.layout.arrays(ranks.arrays["average"][ranks.step & 1])
    for name in parameters(ranks):
        first = ranks.plan.layout.arrays(np.zeros_like(ranks.arrays["average"][0]))[name]  # Ranks begins them at zero
        np.testing.assert_allclose(average[name], 0.75 * first + 0.25 * after[name], rtol=1e-5, atol=1e-7)
    assert (average["1.running_mean"] == after["1.running_mean"]).all()


def test_prediction_and_saving_use_the_average(trainer):
    x, y = images(40, np.float32)
    slow = trainer(net(), optim.SGD(0.5, ema=0.999))
    fast = trainer(net(), optim.SGD(0.5))
    for one in (slow, fast):
        one.fit((x, y), epochs=2, batch_size=8, callbacks=())
    assert slow.history["loss"] == fast.history["loss"]  # training itself is the same
    assert slow.params_sha256() != fast.params_sha256()
    start = trainer(net(), optim.SGD(1e-30))
    start.fit((x, y), epochs=1, batch_size=8, callbacks=())
    for name, array in start.parameters().items():
        if "running" not in name:
            now, moved = slow.parameters()[name], fast.parameters()[name]
            assert np.abs(now - array).max() <= 0.02 * max(np.abs(moved - array).max(), 1e-6), name


@pytest.mark.parametrize("workers", [1, 2, 3, 7])
def test_shards_are_a_deal_of_all_blocks_and_elements(workers):
    x, y = images(4, np.float32)
    ranks = Ranks(net(), optim.SGD(0.1), x, y, chunk=4, batch=4, balancer=Equal(), kernels="numpy")
    blocks = make_blocks(ranks.plan)
    shards = [make_shard(ranks.plan, blocks, (optim.NO_DECAY,), rank, workers) for rank in range(workers)]
    assert sorted(b for s in shards for run in s.blocks for b in range(*run)) == list(range(len(blocks.bounds)))
    owned = np.zeros(ranks.plan.layout.size, int)
    for shard in shards:
        for segment in shard.segments:
            owned[segment.low : segment.high] += 1
    for entry in ranks.plan.layout.parameters:
        assert (owned[entry.offset : entry.offset + entry.size] == 1).all(), entry.name
    assert owned.max() == 1


@pytest.mark.parametrize(
    "options, words",
    [
        ({"clip_norm": 0}, "clip_norm"),
        ({"clip_value": -1}, "clip_value"),
        ({"ema": 1.0}, "ema"),
        ({"groups": ["0.*"]}, "groups"),
        ({"groups": [optim.NO_DECAY, None]}, "groups"),
    ],
)
def test_impossible_options_are_named(options, words):
    with pytest.raises(ConfigError, match=f"Adam.{words}"):
        optim.Adam(1e-3, **options)


def test_unknown_options_and_rates_of_layerwise_groups():
    with pytest.raises(TypeError, match=r"Adam.* 'clipnorm'"):
        optim.Adam(1e-3, clipnorm=1)
    with pytest.raises(ConfigError, match=r"LARS.groups"):
        optim.LARS(0.1, groups=[optim.Group("*", lr_scale=0.1)])
