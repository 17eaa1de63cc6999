"""PyTorch as an independent oracle: layers, losses, optimizers, schedules and models."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from grid import near  # noqa: E402
from nets import ALL, CLASSES, Chunk, Given, Tap, batch_for, shape_of, some_batch  # noqa: E402
from steps import Steps  # noqa: E402
from torch_models import MODELS  # noqa: E402
from torch_nets import (  # noqa: E402
    images_from_torch,
    images_to_torch,
    load,
    missing,
    to_torch,
    weight_from_torch,
)

from corenet import models, nn, optim  # noqa: E402
from corenet.engine import Call, initial_state, make_plan  # noqa: E402
from corenet.kernels import dropout, dropout2d  # noqa: E402
from corenet.kernels.backend import numba_problem, select  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")  # PyTorch's, about its speed
needs_numba = pytest.mark.skipif(numba_problem() is not None, reason="Numba is not installed")
KERNELS = [pytest.param("numba", "float32", marks=needs_numba), ("numpy", "float64")]
EPS = {"float32": float(np.finfo(np.float32).eps), "float64": float(np.finfo(np.float64).eps)}


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_every_layer_has_a_counterpart():
    assert not missing(), "give every layer of corenet.nn its counterpart in tests/torch_nets.py"


# Layers.

C = 3
LAYERS = {
    "conv": nn.Conv2d(C, 5, 3),
    "conv, stride, padding": nn.Conv2d(C, 17, (4, 3), stride=(2, 3), padding=(2, 1)),
    "conv, stride over kernel": nn.Conv2d(C, 4, 2, stride=3, bias=False),
    "conv, wide padding": nn.Conv2d(C, 4, 1, padding=2),
    "conv, dilation": nn.Conv2d(C, 4, (2, 3), (1, 2), padding=(0, 3), dilation=(3, 2)),
    "conv, groups": nn.Conv2d(C, 6, 3, padding=1, groups=3),
    "conv, one filter per channel": nn.Conv2d(C, C, (3, 2), (1, 2), padding=1, dilation=(2, 1), groups=C),
    "conv, same": nn.Conv2d(C, 4, (3, 5), padding="same"),
    "conv, same, even": nn.Conv2d(C, 4, (2, 4), padding="same", dilation=(3, 1)),
    "conv, same, even, one filter per channel": nn.Conv2d(C, C, 4, padding="same", groups=C, bias=False),
    "conv, valid": nn.Conv2d(C, 4, 3, padding="valid"),
    "conv 1d": nn.Conv1d(C, 17, 4, stride=3, padding=2),
    "conv 1d, same, dilation": nn.Conv1d(C, 4, 4, padding="same", dilation=3),
    "conv 1d, groups": nn.Conv1d(C, 2 * C, 3, stride=2, groups=C, bias=False),
    "conv 3d": nn.Conv3d(C, 5, (2, 3, 1), stride=(1, 2, 3), padding=(1, 0, 2)),
    "conv 3d, groups, dilation": nn.Conv3d(C, C, 2, padding=1, dilation=(1, 2, 3), groups=C),
    "conv 3d, same": nn.Conv3d(C, 4, (2, 3, 4), padding="same"),
    "transpose": nn.ConvTranspose2d(C, 5, 3),
    "transpose, stride over kernel": nn.ConvTranspose2d(C, 17, 2, 3, bias=False),
    "transpose, output padding": nn.ConvTranspose2d(C, 4, (3, 4), (2, 3), (1, 2), output_padding=(1, 2)),
    "transpose, groups, dilation": nn.ConvTranspose2d(C, 6, 3, 2, 2, output_padding=1, groups=3, dilation=(1, 2)),
    "transpose, more output padding than stride": nn.ConvTranspose2d(C, 2, 2, 1, 1, output_padding=2, dilation=3),
    "transpose, one filter per channel": nn.ConvTranspose2d(C, C, 3, (2, 1), 1, groups=C),
    "relu": nn.ReLU(),
    "max": nn.MaxPool2d(2),
    "max, padded": nn.MaxPool2d(3, 2, padding=1),
    "max, overlapping": nn.MaxPool2d((3, 2), (1, 1), padding=(1, 1)),
    "max, stride over window": nn.MaxPool2d(2, 3),
    "max, unequal sides": nn.MaxPool2d((4, 2), (3, 1), padding=(2, 0)),
    "average, unequal sides": nn.AvgPool2d((2, 5), (1, 2), padding=(0, 2)),
    "average": nn.AvgPool2d(2),
    "average, padded": nn.AvgPool2d(3, 2, padding=1),  # padding counts in the divisor
    "average, stride over window": nn.AvgPool2d((1, 2), (3, 3)),
    "average, remainder": nn.AvgPool2d(4, 3),
    "max, ceil": nn.MaxPool2d((3, 2), (2, 4), padding=(1, 0), ceil_mode=True),
    "max 1d, ceil": nn.MaxPool1d(4, 3, padding=2, ceil_mode=True),
    "max 3d": nn.MaxPool3d((2, 1, 3), (1, 2, 2), padding=(1, 0, 1)),
    "max 3d, ceil": nn.MaxPool3d(3, 2, padding=1, ceil_mode=True),
    "average, ceil": nn.AvgPool2d((3, 2), (2, 4), padding=(1, 0), ceil_mode=True),
    "average, ceil, padded": nn.AvgPool2d(4, 3, padding=2, ceil_mode=True),
    "average, inside": nn.AvgPool2d((3, 4), 2, padding=(1, 2), count_include_pad=False),
    "average, inside, ceil": nn.AvgPool2d(3, (2, 3), padding=1, ceil_mode=True, count_include_pad=False),
    "average 1d": nn.AvgPool1d(4, 3, padding=2, ceil_mode=True),
    "average 1d, inside": nn.AvgPool1d(3, 2, padding=1, count_include_pad=False),
    "average 3d": nn.AvgPool3d((2, 3, 3), (1, 2, 2), padding=(1, 1, 0), ceil_mode=True),
    "average 3d, inside": nn.AvgPool3d(3, 2, padding=1, ceil_mode=True, count_include_pad=False),
    "flatten": nn.Flatten(),
    "dropout": nn.Dropout(0.3),
    "batch norm": nn.BatchNorm2d(C, eps=1e-3),
    "batch norm of vectors": nn.Sequential(nn.Flatten(), nn.Linear(7 * 6 * C, 5), nn.BatchNorm1d(5, eps=1e-2)),
    "batch norm 1d": nn.BatchNorm1d(C, eps=1e-3),
    "batch norm 3d": nn.BatchNorm3d(C, eps=1e-3),
    "linear": nn.Sequential(nn.Flatten(), nn.Linear(7 * 6 * C, 9)),
    "linear without bias": nn.Sequential(nn.Flatten(), nn.Linear(7 * 6 * C, 17, bias=False)),
    "residual": nn.Residual(nn.Conv2d(C, C, 3, padding=1)),
    "residual with shortcut": nn.Residual(nn.Conv2d(C, 4, 3, 2, padding=1), nn.Conv2d(C, 4, 1, 2)),
}


def samples_for(layer) -> tuple[int, ...]:
    """The shape of samples to try a layer on."""
    return {"1d": (11, C), "3d": (4, 5, 6, C)}.get(type(layer).__name__[-2:], (7, 6, C))


def dropout_masks(chunk):
    """The masks that a chunk's dropout steps have just drawn, in forward order."""
    for call in chunk.program.calls():
        if call.operation in (dropout.forward, dropout2d.forward):
            yield call.args[2]


def noisy(plan, seed=0):
    state = initial_state(plan, seed)
    for entry in plan.layout.parameters:
        noise = np.random.default_rng(seed + entry.offset).standard_normal(entry.shape)
        plan.layout.get(state, entry)[...] += (0.2 * noise).astype(state.dtype)
    return state


@pytest.mark.parametrize("kernels, dtype", KERNELS)
@pytest.mark.parametrize("name", LAYERS)
def test_layer_forward_and_backward(name, kernels, dtype):
    check_layer(name, LAYERS[name], kernels, dtype)


def check_layer(name, layer, kernels, dtype):
    """y, dx and the gradients of parameters, for a given dy; each element to some roundings of the largest."""
    tap, n = Tap(), 3
    rng = np.random.default_rng(3)
    x = rng.standard_normal((n, *samples_for(layer))).astype(dtype)
    net = nn.Sequential(tap, layer)
    given = Given(rng.standard_normal((n, *make_plan(net, x.shape[1:], 1).output_shape)).astype(dtype))
    plan = make_plan(net, x.shape[1:], n + 1, loss=given, dtype=dtype)
    state = noisy(plan)
    chunk = Chunk(plan, select(kernels), state, apart=True)  # the masks stay there to be read
    chunk.run(x, np.zeros(n, int), step=4)

    theirs = to_torch(layer, dropout_masks(chunk))
    load(theirs, {key: array.astype(np.float64) for key, array in plan.layout.arrays(state).items()})
    theirs.train()
    their_x = images_to_torch(x).requires_grad_()
    their_y = theirs(their_x)
    their_y.backward(images_to_torch(given.dy))
    limit = 60 * EPS[dtype]

    def close(got, exact, what):
        near(got, exact, np.full(exact.shape, limit * (np.abs(exact).max() + 0.1)), f"{name}: {what}")

    assert given.output is not None and tap.gradient is not None
    close(given.output, images_from_torch(their_y), "output")
    close(tap.gradient, images_from_torch(their_x.grad), "gradient of the input")
    found = {key: value for key, value in {**chunk.measured(), **chunk.products(n)}.items() if "running" not in key}
    assert len(found) == len(list(theirs.parameters()))
    for key, parameter in zip([e.name for e in plan.layout.parameters], theirs.parameters(), strict=True):
        close(found[key], weight_from_torch(parameter.grad), key)


@pytest.mark.parametrize("label", ALL)
def test_net_forward_and_backward(label):
    """The small nets of tests/nets.py with their loss, in double."""
    net = ALL[label]
    images, labels = batch_for(label, 4)
    plan = make_plan(net, shape_of(label), 4, loss=nn.CrossEntropy(), dtype="float64")
    state = noisy(plan)
    chunk = Chunk(plan, state=state, apart=True)  # the masks stay there to be read
    loss = chunk.run(images, labels, step=1) / 4
    theirs = to_torch(net, dropout_masks(chunk))
    load(theirs, plan.layout.arrays(state))
    theirs.train()
    their_loss = torch.nn.functional.cross_entropy(theirs(images_to_torch(images)), torch.from_numpy(labels))
    their_loss.backward()
    assert loss == pytest.approx(their_loss.item(), rel=1e-12)
    found = chunk.measured() | chunk.products(4)
    for entry, parameter in zip(plan.layout.parameters, theirs.parameters(), strict=True):
        exact = weight_from_torch(parameter.grad)
        np.testing.assert_allclose(found[entry.name], exact, rtol=1e-9, atol=1e-12, err_msg=entry.name)


# Batch normalisation's running statistics.


@needs_numba
@pytest.mark.parametrize("chunk", [7, 3, 2])
@pytest.mark.parametrize("momentum", [0.1, 0.5, 1.0])
@pytest.mark.parametrize("sync", [False, True])
def test_running_statistics_are_those_of_the_whole_batch(sync, momentum, chunk):
    """PyTorch's rule (momentum, unbiased variance) on batches of 7 and 4, whatever the chunks they are cut into."""
    net = nn.Sequential(nn.BatchNorm2d(2, momentum=momentum, sync=sync), nn.Flatten(), nn.Linear(24, CLASSES))
    ours = Steps(net, optim.SGD(0.1), (4, 3, 2), chunk, 7, select("numba"))
    theirs = torch.nn.BatchNorm2d(2, momentum=momentum)
    for step, size in enumerate((7, 4, 7)):
        images, labels = some_batch(size, (4, 3, 2), seed=step)
        images = (images * 3 + 2).astype(np.float32)
        ours.step(images, labels)
        theirs(images_to_torch(images, torch.float32))
        np.testing.assert_allclose(ours.parameters["0.running_mean"], theirs.running_mean, rtol=2e-6)
        np.testing.assert_allclose(ours.parameters["0.running_var"], theirs.running_var, rtol=2e-6)


# Optimizers and schedules.

OPTIMIZERS = {
    "SGD": (optim.SGD(0.1), lambda p: torch.optim.SGD(p, 0.1)),
    "momentum": (optim.SGD(0.1, momentum=0.9), lambda p: torch.optim.SGD(p, 0.1, momentum=0.9)),
    "weight decay": (
        optim.SGD(0.1, momentum=0.8, weight_decay=0.05),
        lambda p: torch.optim.SGD(p, 0.1, momentum=0.8, weight_decay=0.05),
    ),
    "Nesterov": (
        optim.SGD(0.05, momentum=0.9, weight_decay=0.01, nesterov=True),
        lambda p: torch.optim.SGD(p, 0.05, momentum=0.9, weight_decay=0.01, nesterov=True),
    ),
    "Adam": (optim.Adam(), lambda p: torch.optim.Adam(p)),
    "Adam, all arguments": (
        optim.Adam(0.02, betas=(0.8, 0.95), eps=1e-3, weight_decay=0.1),
        lambda p: torch.optim.Adam(p, 0.02, betas=(0.8, 0.95), eps=1e-3, weight_decay=0.1),
    ),
}  # fmt: skip


@pytest.mark.parametrize("kernels, dtype", KERNELS)
@pytest.mark.parametrize("scale", [0, 1])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizer_step_by_step(name, scale, kernels, dtype):
    """Twenty steps over gradients of all sizes; from 0 on, it is the movement that is compared."""
    ours, make = OPTIMIZERS[name]
    rng, size = np.random.default_rng(0), 50
    start = scale * rng.standard_normal(size).astype(dtype)
    state = np.stack([start, np.full(size, np.nan, dtype)])
    slots = np.zeros((2, ours.slots, size), dtype)
    gradient, hyper = np.zeros(size, dtype), np.zeros(ours.hyper_size)
    calls = []
    for copy in (0, 1):
        kept = [slots[which, slot] for slot in range(ours.slots) for which in (copy, 1 - copy)]
        calls.append(Call(ours.operation, size, state[copy], state[1 - copy], gradient, *kept, hyper))
        calls[copy].link(select(kernels))
    parameter = torch.from_numpy(start.astype(np.float64)).requires_grad_()
    theirs = make([parameter])
    for step in range(20):
        gradient[:] = np.where(rng.random(size) < 0.1, 0, rng.standard_normal(size) * 10.0 ** rng.integers(-4, 2, size))
        ours.fill_hyper(hyper, step, ours.lr.rate(step / 7))
        calls[step & 1](0)
        parameter.grad = torch.from_numpy(gradient.astype(np.float64))
        theirs.step()
        exact = parameter.detach().numpy()
        moved = np.abs(exact - start).max() + np.abs(start)
        near(state[1 - (step & 1)], exact, 4 * np.sqrt(step + 4) * EPS[dtype] * moved, f"{name}, step {step}")


def torch_rates(make, epochs):
    theirs = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], 0.3)
    scheduler = make(theirs)
    for _ in range(epochs):
        yield theirs.param_groups[0]["lr"]
        theirs.step()
        scheduler.step()


def test_schedules():
    scheduler = torch.optim.lr_scheduler
    for ours, make, epochs in [
        (optim.Constant(0.3), lambda o: scheduler.ConstantLR(o, factor=1.0), 10),
        (optim.Step(0.3, 4, gamma=0.2), lambda o: scheduler.StepLR(o, 4, gamma=0.2), 30),
        (optim.Step(0.3, 1), lambda o: scheduler.StepLR(o, 1), 5),
        (optim.Cosine(0.3, 20), lambda o: scheduler.CosineAnnealingLR(o, 20), 20),
        (optim.Cosine(0.3, 15, final=0.05), lambda o: scheduler.CosineAnnealingLR(o, 15, eta_min=0.05), 15),
    ]:
        for epoch, rate in enumerate(torch_rates(make, epochs)):
            assert ours.rate(epoch) == pytest.approx(rate, rel=1e-9), (ours, epoch)


# Models.


@pytest.mark.parametrize("name", models.MODELS)
def test_model_is_the_one_of_its_source(name):
    """The same number of parameters, and with the same parameters the same outputs, in double."""
    shape = models.INPUT_SHAPES[name]
    plan = make_plan(models.get(name), shape, 2, dtype="float64")
    theirs = MODELS[name]().double().eval()
    assert plan.layout.parameter_count() == sum(p.numel() for p in theirs.parameters())
    state = noisy(plan)
    rng = np.random.default_rng(1)
    for entry in plan.layout.entries:
        if entry.part == "statistic":
            plan.layout.get(state, entry)[...] = rng.random(entry.shape) + 0.5
    load(theirs, plan.layout.arrays(state))
    images, labels = some_batch(2, shape)
    chunk = Chunk(plan, state=state)
    chunk.run(images, labels)
    exact = images_from_torch(theirs(images_to_torch(images)))
    assert exact.shape == (2, *plan.output_shape)
    np.testing.assert_allclose(chunk.output, exact, rtol=1e-9, atol=1e-11 * np.abs(exact).max())
