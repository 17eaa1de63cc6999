"""PyTorch as an independent oracle of whole training steps: the same losses, step by step, from the same weights."""

import copy

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from steps import Steps  # noqa: E402
from test_torch import needs_numba, one_thread  # noqa: E402, F401
from torch_models import MODELS  # noqa: E402
from torch_nets import images_to_torch, load, to_torch  # noqa: E402

from corenet import models, nn, optim  # noqa: E402
from corenet.kernels.backend import select  # noqa: E402

PRECISION = {"numba": "float32", "numpy": "float64"}


def make_batches(n, size, shape):
    """Ten kinds of pictures of coarse blocks, with noise: something to learn."""
    rng = np.random.default_rng(5)
    coarse = rng.standard_normal((10, shape[0] // 4, shape[1] // 4, shape[2]))
    kinds = coarse.repeat(4, axis=1).repeat(4, axis=2)
    for _ in range(n):
        labels = rng.integers(0, 10, size)
        yield (kinds[labels] + 0.5 * rng.standard_normal((size, *shape))).astype(np.float32), labels


@needs_numba
@pytest.mark.parametrize(
    "ours, theirs",
    [
        (optim.SGD(0.05, momentum=0.9), lambda p: torch.optim.SGD(p, 0.05, momentum=0.9)),
        (optim.Adam(2e-3), lambda p: torch.optim.Adam(p, 2e-3)),
    ],
    ids=["SGD", "Adam"],
)
def test_training_lenet5_follows_pytorch(ours, theirs):
    """Twenty steps from the same weights on the same batches."""
    check_training(models.lenet5(), MODELS["lenet5"](), ours, theirs, (28, 28, 1))
    check_training(models.lenet5(), MODELS["lenet5"]().double(), ours, theirs, (28, 28, 1), kernels="numpy", rel=1e-10)


def check_training(net, module, ours, theirs, shape, *, kernels="numba", rel=1e-5, falls=0.5, **settings):
    """The losses of twenty steps agree, and fall; the steps and the module at their end.

    In single precision, rounding may turn a ReLU or a maximum to the other side, or Adam a gradient of nearly nothing
    into a step; then losses part for good. So two of three beginnings have to agree. In double, one is enough.
    """
    agreed, furthest = [], []
    for seed in range(3 if kernels == "numba" else 1):
        mine = copy.deepcopy(module)
        steps, pairs = training(net, mine, ours, theirs, shape, kernels=kernels, seed=seed, **settings)
        assert seed or pairs[-1][0] < falls * pairs[0][0]
        furthest.append(max(abs(own - loss) / loss for own, loss in pairs))
        if furthest[-1] <= rel:
            agreed.append((steps, mine))
    assert len(agreed) > len(furthest) / 2, furthest
    return agreed[0]


def training(net, module, ours, theirs, shape, *, chunk=16, size=16, kernels="numba", seed=0):
    """Twenty steps and each one's losses, corenet's and PyTorch's; our kernels in the precision that goes with them."""
    steps = Steps(net, ours, shape, chunk, size, select(kernels), seed, dtype=PRECISION[kernels])
    load(module, steps.parameters)
    optimizer, precision = theirs(module.parameters()), next(module.parameters()).dtype
    pairs = []
    for images, labels in make_batches(20, size, shape):
        optimizer.zero_grad()
        logits = module(images_to_torch(images, precision))
        loss = torch.nn.functional.cross_entropy(logits, torch.from_numpy(labels))
        loss.backward()
        optimizer.step()
        pairs.append((steps.step(images, labels), loss.item()))
    return steps, pairs


@pytest.mark.parametrize(
    "name, kernels, rate, batch, rel, falls",
    [
        pytest.param("vgg_small", "numba", 2e-4, 8, 1e-4, 0.9, marks=needs_numba),
        pytest.param("resnet20", "numba", 1e-4, 8, 1e-4, 0.95, marks=needs_numba),
        ("vgg_small", "numpy", 1e-2, 4, 1e-10, 0.7),
        ("resnet20", "numpy", 5e-3, 6, 1e-10, 0.7),
    ],
)
def test_training_models_follows_pytorch_in_double(name, kernels, rate, batch, rel, falls):
    """Chunk = batch. In single precision a ReLU or a maximum sooner or later falls to the other side.

    Then losses part, PyTorch's own in single precision from those in double as much as ours, and the faster the larger
    the steps are: these are small for Numba's kernels, and ordinary for the definitions in double.
    """
    check_training(
        models.get(name), MODELS[name]().double(), optim.SGD(rate, momentum=0.9),
        lambda p: torch.optim.SGD(p, rate, momentum=0.9), models.INPUT_SHAPES[name], chunk=batch, size=batch,
        kernels=kernels, rel=rel, falls=falls,
    )  # fmt: skip


@needs_numba
@pytest.mark.parametrize("sync, chunk, size", [(False, 16, 16), (True, 16, 16), (True, 4, 16), (True, 3, 17)])
def test_training_with_batch_norm_and_residuals_follows_pytorch(sync, chunk, size):
    """The textbook layer: chunk = batch makes it that, or sync with chunks of any size, the last one smaller."""
    net = nn.Sequential(
        nn.Conv2d(2, 6, 3, padding=1, bias=False), nn.BatchNorm2d(6, sync=sync), nn.ReLU(),
        nn.Residual(nn.Sequential(nn.Conv2d(6, 6, 3, padding=1), nn.BatchNorm2d(6, sync=sync))), nn.ReLU(),
        nn.AvgPool2d(2), nn.Flatten(), nn.Linear(96, 12), nn.BatchNorm1d(12, sync=sync), nn.Linear(12, 10),
    )  # fmt: skip
    settings = {"momentum": 0.9, "weight_decay": 1e-3}
    steps, module = check_training(
        net, to_torch(net).float(), optim.SGD(0.05, **settings), lambda p: torch.optim.SGD(p, 0.05, **settings),
        (8, 8, 2), chunk=chunk, size=size,
    )  # fmt: skip
    statistics = [b for key, b in module.named_buffers() if "running_" in key]
    own = [value for key, value in steps.parameters.items() if "running_" in key]
    for got, expected in zip(own, statistics, strict=True):
        np.testing.assert_allclose(got, expected, rtol=2e-5, atol=2e-6)
