"""Schedules: PyTorch's rates epoch by epoch and step by step, values by hand, descriptions, bad arguments."""

import json
import math

import pytest

from corenet import optim
from corenet.errors import ConfigError

ALL = [
    optim.MultiStep(0.3, [7, 3, 7], gamma=0.5),
    optim.Exponential(0.3, 0.9),
    optim.Inverse(0.3, 0.25),
    optim.Polynomial(0.3, 12, power=2.0, final=0.01),
    optim.OneCycle(0.3, 10, pct_start=0.25, steps_per_epoch=4),
    optim.Warmup(optim.Cosine(0.3, 8), 2, start=0.2),
    optim.Warmup(optim.Plateau(0.3), 2),
    optim.Plateau(0.3, 0.5, 1, mode="max"),
]


def check(ours, make, count, unit=1.0):
    """The same rates as PyTorch's scheduler over `count` of its steps, each `unit` epochs of ours."""
    torch = pytest.importorskip("torch")
    theirs = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], 0.3)
    scheduler = make(torch.optim.lr_scheduler, theirs)
    for step in range(count):
        rate = theirs.param_groups[0]["lr"]
        assert ours.rate(step * unit) == pytest.approx(rate, rel=1e-9, abs=1e-16), step
        theirs.step()
        scheduler.step()


def test_multistep_exponential_and_polynomial_are_pytorchs():
    check(optim.MultiStep(0.3, [3, 7, 15]), lambda s, o: s.MultiStepLR(o, [3, 7, 15]), 20)
    check(optim.MultiStep(0.3, [7, 3, 7], gamma=0.5), lambda s, o: s.MultiStepLR(o, [7, 3, 7], gamma=0.5), 20)
    check(optim.Exponential(0.3, 0.9), lambda s, o: s.ExponentialLR(o, 0.9), 20)
    check(optim.Polynomial(0.3, 15), lambda s, o: s.PolynomialLR(o, 15), 20)
    check(optim.Polynomial(0.3, 12, power=2.5), lambda s, o: s.PolynomialLR(o, 12, power=2.5), 20)


@pytest.mark.parametrize("epochs, steps_per_epoch, settings", [
    (20, 1, {}),
    (5, 7, {}),
    (4, 10, {"pct_start": 0.45, "div_factor": 10.0, "final_div_factor": 100.0}),
    (5, 4, {"pct_start": 0.0}),
])  # fmt: skip
def test_one_cycle_is_pytorchs_step_by_step(epochs, steps_per_epoch, settings):
    ours = optim.OneCycle(0.3, epochs, steps_per_epoch=steps_per_epoch, **settings)
    check(
        ours,
        lambda s, o: s.OneCycleLR(o, 0.3, epochs=epochs, steps_per_epoch=steps_per_epoch, **settings),
        epochs * steps_per_epoch - 1,
        1 / steps_per_epoch,
    )
    assert ours.rate(epochs) == pytest.approx(0.3 / ours.div_factor / ours.final_div_factor)


@pytest.mark.parametrize("after", ["cosine", "step"])
def test_warmup_is_pytorchs_linear_then_the_schedule(after):
    then = {"cosine": optim.Cosine(0.3, 12), "step": optim.Step(0.3, 4)}[after]

    def make(s, o):
        theirs = {"cosine": lambda: s.CosineAnnealingLR(o, 12), "step": lambda: s.StepLR(o, 4)}[after]()
        return s.SequentialLR(o, [s.LinearLR(o, 0.25, total_iters=5), theirs], milestones=[5])

    check(optim.Warmup(then, 5, start=0.25), make, 17)


@pytest.mark.parametrize("settings", [
    {},
    {"patience": 0},
    {"patience": 1, "cooldown": 2, "factor": 0.5},
    {"patience": 0, "min_lr": 0.02},
    {"patience": 1, "threshold": 0.3},
    {"patience": 1, "threshold": 0.3, "threshold_mode": "abs", "cooldown": 1},
    {"patience": 1, "mode": "max", "threshold": 0.3},
    {"patience": 1, "mode": "max", "threshold": 0.3, "threshold_mode": "abs"},
    {"patience": 0, "factor": 0.5, "eps": 0.3 / 8},
    {"patience": 1, "threshold": 0.0, "eps": 0.0},
], ids=str)  # fmt: skip
def test_plateau_is_pytorchs(settings):
    """Metrics that fall, rise, stay, are NaN or negative; and a schedule made of the description goes on the same."""
    torch = pytest.importorskip("torch")
    theirs = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], 0.3)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(theirs, **settings)
    ours = optim.Plateau(0.3, **settings)
    falling = [3.0 * 0.8**k for k in range(6)]
    metrics = [math.inf, *falling, math.nan, 0.9, 0.9, *[0.95] * 15, 0.1, -0.1, -0.2, 0.3, 0.5, 2.0, 2.7, *[2.8] * 12]
    seen = {0.3}
    for metric in metrics:
        scheduler.step(metric)
        ours.observe({"loss": metric, "accuracy": metric})
        assert ours.rate(5) == pytest.approx(theirs.param_groups[0]["lr"], rel=1e-12)
        ours = optim.build(json.loads(json.dumps(optim.describe(ours))))
        seen.add(ours.rate(0))
    assert len(seen) > 1, "nothing was ever reduced"


def test_plateau_by_hand():
    plateau = optim.Plateau(1.0, factor=0.5, patience=1, cooldown=1, min_lr=0.2)
    rates = []
    for metric in [3.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 1.0, 1.0, 1.0]:
        plateau.observe({"loss": metric})
        rates.append(plateau.rate(0))
    assert rates == [1, 1, 1, 0.5, 0.5, 0.5, 0.25, 0.25, 0.25, 0.2]
    assert plateau.state == [0.2, 1.0, 0, 1]


def test_plateau_rate_changes_by_observing_only():
    plateau = optim.Plateau(0.5, patience=0)
    assert [plateau.rate(epoch) for epoch in (0, 3.5, 900)] == [0.5] * 3
    warm = optim.Warmup(plateau, 4, start=0.0)
    assert warm.rate(2) == 0.25 and warm.rate(4) == warm.rate(9) == 0.5
    for epoch in range(1, 6):
        warm.observe({"epoch": epoch, "loss": 1.0})
    assert warm.rate(9) == 0.5, "the warm-up was observed"
    warm.observe({"epoch": 6, "loss": 1.0})
    assert warm.rate(9) == pytest.approx(0.05)
    constant = optim.Constant(0.5)
    constant.observe({"loss": 1.0})
    assert constant.rate(1) == 0.5


@pytest.mark.parametrize("epochs, first", [(2, 3), (1.5, 3), (0.25, 2)])
def test_plateau_observes_whole_epochs_after_the_warmup(epochs, first):
    plateau = optim.Plateau(0.5)
    warm = optim.Warmup(plateau, epochs)
    seen = []
    for epoch in range(1, 6):
        warm.observe({"epoch": epoch, "loss": -float(epoch)})
        seen += [epoch] * (plateau.state[1] is not None)
    assert seen[0] == first
    twice = optim.Warmup(optim.Warmup(optim.Plateau(0.5), 1), 2)
    twice.observe({"epoch": 3, "loss": 1.0})  # of the inner warm-up
    assert twice.schedule.schedule.state[1] is None


@pytest.mark.parametrize("made, text", [
    (optim.Adam(), "Adam(lr=0.001)"),
    (optim.SGD(optim.Warmup(optim.Cosine(0.3, 8), 2), 0.9), "SGD(lr=Warmup(schedule=Cosine(lr=0.3, epochs=8.0), "
                                                            "epochs=2.0), momentum=0.9)"),
    (optim.AdamW(groups=[optim.Group("0.*")], ema=0.9), "AdamW(lr=0.001, groups=(Group(names='0.*', max_ndim=None, "
                                                        "weight_decay=None, lr_scale=1.0),), ema=0.9)"),
    (optim.Step(0.1, 3), "Step(lr=0.1, every=3.0)"),
])  # fmt: skip
def test_optimizers_and_schedules_print_as_they_are_written(made, text):
    assert repr(made) == text
    again = eval(text, vars(optim))
    assert optim.describe(again) == optim.describe(made)


def test_values_by_hand():
    assert optim.Inverse(0.3, 0.5).rate(0) == 0.3
    assert optim.Inverse(0.3, 0.5).rate(4) == pytest.approx(0.1)
    assert optim.Exponential(0.5, 0.25).rate(0.5) == 0.25
    polynomial = optim.Polynomial(1.0, 10, power=2.0, final=0.2)
    assert [polynomial.rate(epoch) for epoch in (0, 5, 10, 99)] == pytest.approx([1.0, 0.4, 0.2, 0.2])
    cycle = optim.OneCycle(1.0, 10, pct_start=0.4, div_factor=4, final_div_factor=5)
    expected = [0.25, 0.625, 1.0, (1 + 0.05) / 2, 0.05, 0.05]
    assert [cycle.rate(epoch) for epoch in (0, 2, 4, 7, 10, 99)] == pytest.approx(expected)
    warm = optim.Warmup(0.4, 4, start=0.5)
    assert [warm.rate(epoch) for epoch in (0, 2, 4, 9)] == pytest.approx([0.2, 0.3, 0.4, 0.4])
    steps = optim.MultiStep(1.0, [0.3, 2.5])
    assert [steps.rate(e) for e in (0.2, 0.1 + 0.2, 3 * 0.1, 2.4, 2.5)] == pytest.approx([1, 0.1, 0.1, 0.1, 0.01])
    assert optim.scaled_lr(0.1, 8192) == pytest.approx(3.2)
    assert optim.scaled_lr(0.1, 64, reference_batch=128) == pytest.approx(0.05)


@pytest.mark.parametrize("schedule", ALL, ids=lambda schedule: type(schedule).__name__)
def test_description_through_json(schedule):
    again = optim.build(json.loads(json.dumps(optim.describe(schedule))))
    assert optim.describe(again) == optim.describe(schedule)
    assert [again.rate(epoch / 3) for epoch in range(40)] == [schedule.rate(epoch / 3) for epoch in range(40)]


@pytest.mark.parametrize("make, named", [
    (lambda: optim.MultiStep(0.1, 3), "MultiStep(milestones"),
    (lambda: optim.MultiStep(0.1, [3, -1]), "MultiStep(milestones"),
    (lambda: optim.MultiStep(0.1, "12"), "MultiStep(milestones"),
    (lambda: optim.MultiStep(0.1, [3], gamma=0), "MultiStep(gamma"),
    (lambda: optim.Exponential(0.1, math.nan), "Exponential(gamma"),
    (lambda: optim.Inverse(0.1, -1), "Inverse(decay"),
    (lambda: optim.Polynomial(0.1, 0), "Polynomial(epochs"),
    (lambda: optim.Polynomial(0.1, 5, power=0), "Polynomial(power"),
    (lambda: optim.Polynomial(0.1, 5, final=-1), "Polynomial(final"),
    (lambda: optim.OneCycle(0.1, 5, pct_start=1.0), "OneCycle(pct_start"),
    (lambda: optim.OneCycle(0.1, 5, div_factor=0), "OneCycle(div_factor"),
    (lambda: optim.OneCycle(0.1, 5, final_div_factor=-1), "OneCycle(final_div_factor"),
    (lambda: optim.OneCycle(0.1, 5, steps_per_epoch=0), "OneCycle(steps_per_epoch"),
    (lambda: optim.OneCycle(0.1, 5, steps_per_epoch=1.5), "OneCycle(steps_per_epoch"),
    (lambda: optim.Warmup("fast", 5), "Warmup(lr"),
    (lambda: optim.Warmup(0.1, 0), "Warmup(epochs"),
    (lambda: optim.Warmup(0.1, 5, start=1.0), "Warmup(start"),
    (lambda: optim.Plateau(0), "Plateau(lr"),
    (lambda: optim.Plateau(0.1, factor=1.0), "Plateau(factor"),
    (lambda: optim.Plateau(0.1, factor=0), "Plateau(factor"),
    (lambda: optim.Plateau(0.1, patience=1.5), "Plateau(patience"),
    (lambda: optim.Plateau(0.1, threshold=-1), "Plateau(threshold"),
    (lambda: optim.Plateau(0.1, cooldown=-1), "Plateau(cooldown"),
    (lambda: optim.Plateau(0.1, min_lr=-1), "Plateau(min_lr"),
    (lambda: optim.Plateau(0.1, mode="least"), "Plateau(mode"),
    (lambda: optim.Plateau(0.1, threshold_mode="no"), "Plateau(threshold_mode"),
    (lambda: optim.Plateau(0.1, state=[0.1]), "Plateau(state"),
    (lambda: optim.Plateau(0.1, state=[0.1, "x", 0, 0]), "Plateau(state"),
    (lambda: optim.Plateau(0.1, state=[0.1, None, -1, 0]), "Plateau(state"),
    (lambda: optim.scaled_lr(0.1, 0), "scaled_lr(batch_size"),
    (lambda: optim.scaled_lr(0.1, 32, 0), "scaled_lr(reference_batch"),
    (lambda: optim.scaled_lr(-0.1, 32), "scaled_lr(lr"),
])  # fmt: skip
def test_bad_arguments_name_the_class_and_the_argument(make, named):
    with pytest.raises(ConfigError) as caught:
        make()
    assert str(caught.value).startswith(named) and "expected" in str(caught.value) and "got" in str(caught.value)
