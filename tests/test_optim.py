"""Optimizers and schedules: their values at known places, and what a user reads who gives them what they cannot take.

That their steps are PyTorch's is in test_torch.py.
"""

import json
import math

import numpy as np
import pytest

from corenet import optim
from corenet.errors import ConfigError
from corenet.kernels import update

ARGUMENTS = [
    (lambda: optim.SGD(-1), "SGD(lr=…): expected a number above 0, got -1"),
    (lambda: optim.SGD(0), "SGD(lr=…): expected a number above 0, got 0"),
    (lambda: optim.SGD(float("nan")), "SGD(lr=…): expected a number above 0, got nan"),
    (lambda: optim.SGD(float("inf")), "SGD(lr=…): expected a number above 0, got inf"),
    (lambda: optim.SGD("fast"), "SGD(lr=…): expected a number above 0, got 'fast'"),
    (lambda: optim.SGD(True), "SGD(lr=…): expected a number above 0, got True"),
    (lambda: optim.SGD(0.1, momentum=-0.5), "SGD(momentum=…): expected a number of at least 0, got -0.5"),
    (lambda: optim.SGD(0.1, weight_decay=None), "SGD(weight_decay=…): expected a number of at least 0, got None"),
    (lambda: optim.SGD(0.1, nesterov=True), "SGD(nesterov=True): expected momentum above 0, got 0"),
    (lambda: optim.Adam(lr=None), "Adam(lr=…): expected a number above 0, got None"),
    (lambda: optim.Adam(eps=0), "Adam(eps=…): expected a number above 0, got 0"),
    (lambda: optim.Adam(weight_decay=-1), "Adam(weight_decay=…): expected a number of at least 0, got -1"),
    (lambda: optim.Adam(betas=0.9), "Adam(betas=…): expected two numbers below 1, got 0.9"),
    (lambda: optim.Adam(betas=None), "Adam(betas=…): expected two numbers below 1, got None"),
    (lambda: optim.Adam(betas=(0.9,)), "Adam(betas=…): expected two numbers below 1, got (0.9,)"),
    (lambda: optim.Adam(betas=(0.9, 0.99, 0.5)), "Adam(betas=…): expected two numbers below 1, got (0.9, 0.99, 0.5)"),
    (lambda: optim.Adam(betas=(0.9, 1.0)), "Adam(betas=…): expected two numbers below 1, got (0.9, 1.0)"),
    (lambda: optim.Adam(betas=(-1, 0.9)), "Adam(betas[0]=…): expected a number of at least 0, got -1"),
    (lambda: optim.Constant(0), "Constant(lr=…): expected a number above 0, got 0"),
    (lambda: optim.Step(0.1, 0), "Step(every=…): expected a number above 0, got 0"),
    (lambda: optim.Step(0.1, 5, gamma=0), "Step(gamma=…): expected a number above 0, got 0"),
    (lambda: optim.Step("x", 5), "Step(lr=…): expected a number above 0, got 'x'"),
    (lambda: optim.Cosine(0.1, 0), "Cosine(epochs=…): expected a number above 0, got 0"),
    (lambda: optim.Cosine(0.1, 10, final=-1), "Cosine(final=…): expected a number of at least 0, got -1"),
]


@pytest.mark.parametrize("make, message", ARGUMENTS, ids=[message for _, message in ARGUMENTS])
def test_arguments_that_an_optimizer_or_schedule_cannot_take(make, message):
    with pytest.raises(ConfigError) as caught:
        make()
    assert str(caught.value) == message


def test_numbers_of_numpy_are_numbers():
    made = optim.SGD(np.float32(0.5), momentum=np.float64(0.25), weight_decay=np.int64(0))
    assert optim.describe(made) == optim.describe(optim.SGD(0.5, momentum=0.25))
    assert optim.Cosine(np.float32(0.5), np.int64(4)).rate(2) == 0.25


def test_constant_and_cosine_at_known_places():
    assert [optim.Constant(0.3).rate(epoch) for epoch in (0, 0.5, 100)] == [0.3] * 3
    cosine = optim.Cosine(0.4, 8, final=0.1)
    for epoch, rate in [(0, 0.4), (2, 0.25 + 0.15 * math.sqrt(0.5)), (4, 0.25), (8, 0.1), (9, 0.1), (1000, 0.1)]:
        assert cosine.rate(epoch) == pytest.approx(rate, rel=1e-12)
    rates = [cosine.rate(epoch / 10) for epoch in range(81)]
    assert rates == sorted(rates, reverse=True) and len(set(rates)) == 81


@pytest.mark.parametrize("every, steps", [(1, 7), (3, 4), (0.5, 4), (0.1, 10), (0.3, 10), (1.5, 6)])
def test_steps_happen_when_they_are_due(every, steps):
    """At the first batch that begins after k·every epochs, also where neither is an exact binary fraction."""
    schedule = optim.Step(1.0, every, gamma=0.5)
    for epoch in range(40):
        for index in range(steps):
            done, interval = epoch * steps + index, round(every * steps * 10)  # tenths of a batch
            assert schedule.rate(epoch + index / steps) == 0.5 ** (done * 10 // interval), (epoch, index)


def test_hyper_numbers_of_a_step():
    """Step 0 of Adam is corrected by 1 − beta¹; the rate is given, the correction that of the step."""
    hyper = np.full(7, np.nan)
    optim.Adam(betas=(0.5, 0.75), eps=0.25, weight_decay=2).fill_hyper(hyper, 0, 0.01)
    np.testing.assert_allclose(hyper, [0.01, 0.5, 0.75, 0.25, 2, 0.5, 0.25], rtol=1e-15)
    optim.Adam(betas=(0.5, 0.75)).fill_hyper(hyper, 2, 0.1)
    np.testing.assert_allclose(hyper[5:], [1 - 0.125, 1 - 0.75**3], rtol=1e-15)
    hyper = np.full(4, np.nan)
    optim.SGD(0.1, momentum=0.5, weight_decay=2, nesterov=True).fill_hyper(hyper, 3, 2.0)
    assert hyper.tolist() == [2, 0.5, 2, 1]


@pytest.mark.parametrize("make", [lambda: optim.SGD(0.1, 0.9, 0.01, True), lambda: optim.Adam(0.01, weight_decay=0.1)])
def test_an_update_does_not_depend_on_the_shards(make):
    """Elementwise: the parts of three owners are the whole, bit for bit, and nothing beside them is written."""
    optimizer, size = make(), 48
    rng = np.random.default_rng(0)
    old, gradient = rng.standard_normal((2, size)).astype(np.float32)
    slots = np.abs(rng.standard_normal((optimizer.slots, size))).astype(np.float32)
    hyper = np.zeros(optimizer.hyper_size)
    optimizer.fill_hyper(hyper, 3, 0.1)

    def updated(*borders):
        new, new_slots = np.full(size, 7, np.float32), np.full_like(slots, 7)
        kept = [a for pair in zip(slots, new_slots, strict=True) for a in pair]
        for low, high in borders:
            optimizer.operation(low, high, old, new, gradient, *kept, hyper)
        return np.stack([new, *new_slots])

    whole = updated((0, size))
    assert not (whole == 7).any()
    assert (updated((16, 32), (32, 48), (0, 16)) == whole).all()
    part = updated((16, 32))
    assert (part[:, 16:32] == whole[:, 16:32]).all() and (np.delete(part, slice(16, 32), 1) == 7).all()


def test_padding_between_parameters_stays_zero():
    """Zeros with zero gradients stay zeros under every optimizer: padding of the state vector never becomes NaN."""
    for optimizer in (optim.SGD(0.1, 0.9, 0.01), optim.Adam(weight_decay=0.1)):
        zero, hyper = np.zeros(4), np.zeros(optimizer.hyper_size)
        optimizer.fill_hyper(hyper, 0, 0.1)
        new = np.full((1 + optimizer.slots, 4), np.nan)
        kept = [a for slot in new[1:] for a in (zero, slot)]
        optimizer.operation(0, 4, zero, new[0], zero, *kept, hyper)
        assert (new == 0).all()


@pytest.mark.parametrize(
    "thing",
    [
        optim.SGD(optim.Step(0.1, 3, 0.5), 0.9, 1e-4, True),
        optim.Adam(optim.Cosine(0.01, 7, 1e-4), (0.8, 0.99), 1e-6, 0.1),
        optim.SGD(0.3),
    ],
)
def test_an_optimizer_survives_being_described(thing):
    description = json.loads(json.dumps(optim.describe(thing)))
    again = optim.build(description)
    assert type(again) is type(thing) and optim.describe(again) == optim.describe(thing)
    numbers = np.zeros((2, thing.hyper_size))
    thing.fill_hyper(numbers[0], 5, thing.lr.rate(3.5))
    again.fill_hyper(numbers[1], 5, again.lr.rate(3.5))
    assert (numbers[0] == numbers[1]).all() and numbers[0].any()
    assert again.operation is (update.sgd if type(again) is optim.SGD else update.adam)


@pytest.mark.parametrize("description", [{"type": "RMSProp"}, [], {"type": "SGD"}, {"type": "SGD", "lr": 1, "x": 2}])
def test_descriptions_of_no_optimizer(description):
    with pytest.raises(ConfigError, match="optimizer description"):
        optim.build(description)
