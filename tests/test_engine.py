"""A plan's memory and its calls: nothing alive is overwritten, nothing unwritten is read, no sample knows another."""

import numpy as np
import pytest
from grid import near
from hypothesis import given, settings
from hypothesis import strategies as st
from nets import ALL, Chunk, batch_for, gradients, shape_of, some_batch

from corenet import models
from corenet.engine import initial_state, make_plan
from corenet.engine.buffer import ALIGNMENT, Buffer, aligned, place_by_lifetime
from corenet.engine.plan import Step
from corenet.kernels.backend import Backend, numba_problem, select
from corenet.nn import BatchNorm2d, Conv2d, CrossEntropy, Flatten, Linear, ReLU, Sequential

needs_numba = pytest.mark.skipif(numba_problem() is not None, reason="Numba is not installed")
NUMBA = Backend("numba", 1, "test")


# Memory planning.


def overlap(lifetimes, a, b):
    """Whether two buffers are alive together and share bytes."""
    together = lifetimes[a][0] <= lifetimes[b][1] and lifetimes[b][0] <= lifetimes[a][1]
    return together and a.offset < b.offset + b.nbytes and b.offset < a.offset + a.nbytes


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.integers(0, 300), st.integers(0, 12), st.integers(0, 6)), max_size=25))
def test_buffers_alive_together_never_overlap(drawn):
    lifetimes = {Buffer((size,), "uint8", "arena"): (first, first + more) for size, first, more in drawn}
    total = place_by_lifetime(lifetimes)
    buffers = list(lifetimes)
    assert not any(overlap(lifetimes, a, b) for i, a in enumerate(buffers) for b in buffers[:i])
    assert all(b.offset % ALIGNMENT == 0 and b.offset >= 0 and b.offset + b.nbytes <= total for b in buffers)
    need = [sum(aligned(b.nbytes) for b in buffers if lifetimes[b][0] <= t <= lifetimes[b][1]) for t in range(20)]
    assert max(need) <= total <= sum(aligned(b.nbytes) for b in buffers)


def test_memory_is_used_again():
    """A chain of equal buffers, each alive with its neighbours only, takes the room of two."""
    chain = {Buffer((1000,), "float32", "arena"): (time, time + 1) for time in range(10)}
    assert place_by_lifetime(chain) == 2 * aligned(4000)
    gap = {
        Buffer((n,), "uint8", "arena"): life for n, life in [(640, (0, 9)), (64, (0, 1)), (64, (2, 9)), (64, (1, 9))]
    }
    assert place_by_lifetime(gap) == 640 + 128


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("label", [*ALL, "resnet20"])
def test_no_plan_has_overlapping_buffers(label, training):
    net, shape = (models.resnet20(), (32, 32, 3)) if label == "resnet20" else (ALL[label], shape_of(label))
    plan = make_plan(net, shape, 2, loss=CrossEntropy() if training else None)
    lifetimes: dict = {}
    for time, step in enumerate((*plan.forward, *plan.backward)):
        for root in {buffer.root for buffer in step.buffers()} if isinstance(step, Step) else ():
            if root.space == "arena":
                lifetimes[root] = (lifetimes.get(root, (time,))[0], time)
    if not training and plan.output.root in lifetimes:
        lifetimes[plan.output.root] = (lifetimes[plan.output.root][0], len(plan.forward))
    buffers = list(lifetimes)
    assert not any(overlap(lifetimes, a, b) for i, a in enumerate(buffers) for b in buffers[:i])
    assert all(b.offset + b.nbytes <= plan.bytes["arena"] for b in buffers)
    if label == "resnet20":
        assert plan.bytes["arena"] < sum(b.nbytes for b in buffers) * (0.75 if training else 0.25)


def results(net, images, labels, *, chunk=None, dtype="float32", backend=None, apart=False, state=None, runs=1):
    """Loss sum, gradients, statistics, and the output of prediction, of one chunk."""
    n = len(images)
    plan = make_plan(net, images.shape[1:], chunk or n, chunk or n, loss=CrossEntropy(), dtype=dtype)
    training = Chunk(plan, backend, state, apart)
    for _ in range(runs):
        loss = training.run(images, labels, count=n, step=3)
    prediction = Chunk(make_plan(net, images.shape[1:], chunk or n, dtype=dtype), backend, training.state, apart)
    prediction.run(images, labels)
    return {
        "loss": np.array(loss),
        "output": prediction.output[:n].copy(),
        **training.measured(),
        **training.products(n),
    }


def assert_same_bits(a, b):
    assert a.keys() == b.keys()
    for name in a:
        assert np.isfinite(a[name]).all(), name
        assert a[name].tobytes() == b[name].tobytes(), name


@pytest.mark.parametrize("backend", [pytest.param("numba", marks=needs_numba), "numpy"])
@pytest.mark.parametrize("label", ALL)
def test_sharing_memory_changes_nothing(label, backend):
    """The arena, NaN before the chunk and full of leftovers in it, against a buffer for each array with guard words."""
    images, labels = batch_for(label, 3)
    backend = select(backend)
    shared = results(ALL[label], images, labels, backend=backend)
    assert_same_bits(shared, results(ALL[label], images, labels, backend=backend, apart=True))
    assert_same_bits(shared, results(ALL[label], images, labels, backend=backend, runs=2))


@needs_numba
@pytest.mark.parametrize("label", ALL)
def test_partial_chunk_gives_the_bits_of_a_plan_of_its_size(label):
    images, labels = batch_for(label, 3)
    exact = results(ALL[label], images, labels, backend=NUMBA)
    assert_same_bits(exact, results(ALL[label], images, labels, backend=NUMBA, chunk=5))


@needs_numba
@pytest.mark.parametrize("label", ALL)
def test_compiled_plan_agrees_with_the_definitions_in_double(label):
    net = ALL[label]
    images, labels = batch_for(label, 3)
    images = images.astype(np.float32)
    shape = shape_of(label)
    plan, double = (make_plan(net, shape, 1, loss=CrossEntropy(), dtype=dtype) for dtype in ("float32", "float64"))
    state, state64 = initial_state(plan, 0), initial_state(double, 0)
    for name, array in double.layout.arrays(state64).items():
        array[...] = plan.layout.arrays(state)[name]
    got = results(net, images, labels, backend=NUMBA, state=state)
    exact = results(net, images.astype(np.float64), labels, dtype="float64", state=state64)
    assert got.keys() == exact.keys()
    for name, value in exact.items():
        # Chains of a few hundred roundings, of numbers up to the array's largest.
        near(got[name], value, 40 * np.finfo(np.float32).eps * (np.abs(value).max() + 0.1), f"{label}: {name}")


@pytest.mark.parametrize("shares", [(3, 1), (7, 6), (5, 0), (1, 1, 1, 1, 1), (2, 5, 4)])
@pytest.mark.parametrize("label", ["Conv2d, 3x3", "Residual, nested", "Dropout, of a vector, twice", "Linear, three"])
def test_chunks_of_any_size_add_up_to_the_gradient_of_the_batch(label, shares):
    """Mean of means is not the mean: the loss divides by the batch's samples, whatever the chunks."""
    images, labels = batch_for(label, sum(shares))
    loss, whole = gradients(ALL[label], images, labels, [sum(shares)])
    loss_of_parts, parts = gradients(ALL[label], images, labels, shares)
    assert loss_of_parts == pytest.approx(loss, rel=1e-13)
    assert parts.keys() == whole.keys()
    for name, value in whole.items():
        np.testing.assert_allclose(parts[name], value, rtol=1e-11, atol=1e-13, err_msg=name)


@pytest.mark.parametrize("backend", [pytest.param("numba", marks=needs_numba), "numpy"])
@pytest.mark.parametrize("sync", [False, True])
def test_batch_norm_of_one_value_is_finite(sync, backend):
    """One sample, one position: the variance is 0, the output is beta, and no gradient is NaN."""
    net = Sequential(Conv2d(1, 2, 2), BatchNorm2d(2, sync=sync), ReLU(), Flatten(), Linear(2, 3))
    images, labels = some_batch(1, (2, 2, 1))
    found = results(net, images, labels, chunk=4, backend=select(backend))
    assert all(np.isfinite(value).all() for value in found.values())
    assert (found["1.running_var"] == 0).all()  # Σ (x − mean)² of one value
    assert (found["0.weight"] == 0).all() and (found["1.weight"] == 0).all()  # nothing before it can change the loss
    assert (found["4.bias"] != 0).all()


@pytest.mark.parametrize("backend", [pytest.param("numba", marks=needs_numba), "numpy"])
def test_batch_norm_keeps_a_small_variance_far_from_zero(backend):
    """Two passes: Σx² − (Σx)²/n of such numbers has no correct digit in float32."""
    rng = np.random.default_rng(0)
    images = (3000 + rng.standard_normal((8, 6, 6, 2))).astype(np.float32)
    net = Sequential(BatchNorm2d(2), Flatten(), Linear(72, 3))
    found = results(net, images, np.zeros(8, int), backend=select(backend))
    exact = images.astype(np.float64).var(axis=(0, 1, 2)) * 8 * 36
    np.testing.assert_allclose(found["0.running_var"], exact, rtol=1e-4)
    np.testing.assert_allclose(found["0.running_mean"], images.mean(axis=(0, 1, 2), dtype=np.float64), rtol=1e-6)


@pytest.mark.parametrize("backend", [pytest.param("numba", marks=needs_numba), "numpy"])
@pytest.mark.parametrize("label", ALL)
def test_a_sample_that_is_not_a_number_is_noticed(label, backend):
    """No layer turns NaN into a number: the loss says so, and in prediction that sample's output alone."""
    images, labels = batch_for(label, 3)
    images[1] = np.nan
    with np.errstate(invalid="ignore"):
        plan = make_plan(ALL[label], shape_of(label), 3, loss=CrossEntropy())
        assert np.isnan(Chunk(plan, select(backend)).run(images, labels))
        prediction = Chunk(make_plan(ALL[label], shape_of(label), 3), select(backend))
        prediction.run(images, labels)
    assert np.isnan(prediction.output).all(axis=1).tolist() == [False, True, False]
    assert np.isfinite(prediction.output[[0, 2]]).all()
