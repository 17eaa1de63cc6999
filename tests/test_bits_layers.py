"""The bits do not depend on workers and threads for the layers of tests/nets_layers.py, either."""

import numpy as np
import pytest
from conftest import CLASSES
from test_bits import Case, differing

from corenet import nn, optim
from corenet.engine import make_plan
from corenet.engine.plan import Step

CREWS = [(3, 1), (2, 2), (1, 1)]  # workers, threads of each; first those that share the compiling


def smooth() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(1, 6, 3, padding=1, bias=False), nn.GroupNorm(2, 6), nn.GELU(), nn.Dropout2d(0.2),
        nn.Residual(nn.Sequential(nn.LayerNorm(6), nn.Conv2d(6, 6, 1), nn.SiLU(), nn.Conv2d(6, 6, 1), nn.ELU())),
        nn.AdaptiveAvgPool2d((4, 3)), nn.LeakyReLU(), nn.GlobalAvgPool2d(), nn.Tanh(), nn.Linear(6, CLASSES),
    )  # fmt: skip


def resized() -> nn.Sequential:
    return nn.Sequential(
        nn.ZeroPad2d((0, 1, 1, 0)), nn.Conv2d(1, 5, 3), nn.LocalResponseNorm(3, alpha=0.5), nn.MaxPool2d(2),
        nn.Upsample(2, "bilinear"), nn.Conv2d(5, 4, 3), nn.Sigmoid(), nn.Upsample(2), nn.Softmax(),
        nn.Residual(nn.Reshape(4, 4, 4)), nn.GlobalMaxPool2d(), nn.Linear(4, CLASSES),
    )  # fmt: skip


def branched() -> nn.Sequential:
    module = nn.Concat(
        nn.Conv2d(4, 2, 1), nn.Sequential(nn.Conv2d(4, 3, 3, padding=1, bias=False), nn.BatchNorm2d(3)),
        nn.Sequential(nn.MaxPool2d(3, 1, padding=1), nn.Dropout(0.3)), nn.Identity(),
    )  # fmt: skip
    return nn.Sequential(
        nn.Concat(nn.Conv2d(1, 3, 3, padding=1), nn.Identity()), module, nn.ReLU(), nn.AvgPool2d(2), nn.Flatten(),
        nn.Concat(nn.Linear(117, 20), nn.Linear(117, 3)), nn.Linear(23, CLASSES),
    )  # fmt: skip


def wide() -> nn.Sequential:
    """Enough channels for Winograd's convolution, of images that fill blocks of patches and leave some over."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 20, 3, padding=1, bias=False), nn.BatchNorm2d(20),
        nn.ReLU(), nn.MaxPool2d(2), nn.Upsample(3), nn.Conv2d(20, 17, 3), nn.ReLU(),
        nn.Conv2d(17, 16, 5, padding=2), nn.ReLU(), nn.Conv2d(16, 17, 3, algorithm="winograd2"), nn.GlobalAvgPool2d(),
        nn.Linear(17, CLASSES),
    )  # fmt: skip


def test_the_wide_net_goes_by_winograd():
    plan = make_plan(wide(), (6, 6, 1), 6, loss=nn.CrossEntropy())
    names = [step.operation.name for step in plan.backward if isinstance(step, Step)]
    for member, times, adjoint in (("4x3", 2, 1), ("4x5", 1, 0), ("2x3", 1, 1)):
        of_data = [names.count(f"winograd_{member}.backward_data{form}") for form in ("", "_adjoint")]
        assert names.count(f"winograd_{member}.backward_weights") == times and of_data == [times - adjoint, adjoint]


CASES = {
    "wide": Case(wide, optim.SGD(0.05, 0.9), batch=26, settings={"chunk": 7}),
    "smooth": Case(smooth, optim.Adam(0.01)),
    "resized": Case(resized, batch=40, settings={"chunk": 6}),
    "branched": Case(branched, optim.SGD(0.05, 0.9), batch=20, settings={"chunk": 4}),
}


@pytest.mark.parametrize("name", CASES)
def test_workers_and_threads_leave_no_trace(trainer, name):
    results = {(w, t): CASES[name].train(trainer, workers=w, threads=t) for w, t in CREWS}
    alone = results[1, 1]
    assert np.isfinite([*alone["loss"], *alone["val_loss"]]).all()
    assert {crew: names for crew, other in results.items() if (names := differing(alone, other))} == {}
