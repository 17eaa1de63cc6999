"""The state vector: aligned entries that never meet, initial values by seed, and a hash of what was trained."""

import hashlib
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nets import ALL, shape_of

from corenet import models
from corenet.engine import Layout, initial_state, make_plan
from corenet.engine.layout import PARTS
from corenet.nn import BatchNorm2d, Conv2d, CrossEntropy, Flatten, Linear, Sequential

ENTRIES = st.lists(
    st.tuples(st.lists(st.integers(0, 9), min_size=1, max_size=3), st.sampled_from(PARTS)), min_size=1, max_size=12
)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(ENTRIES, st.sampled_from(["float32", "float64"]))
def test_entries_are_aligned_apart_and_in_their_part(drawn, dtype):
    layout = Layout.of([(f"p{i}", tuple(shape), part) for i, (shape, part) in enumerate(drawn)], np.dtype(dtype))
    assert [(e.name, list(e.shape), e.part) for e in layout.entries] == [(f"p{i}", *one) for i, one in enumerate(drawn)]
    borders = [0, layout.row_end, layout.stat_end, layout.size]
    assert borders == sorted(borders)
    used = np.zeros(layout.size, int)
    for entry in layout.entries:
        part = PARTS.index(entry.part)
        assert entry.offset * layout.dtype.itemsize % 64 == 0
        assert borders[part] <= entry.offset and entry.offset + entry.size <= borders[part + 1]
        used[entry.offset : entry.offset + entry.size] += 1
    assert used.max(initial=0) <= 1
    assert layout.size <= sum(e.size for e in layout.entries) + 16 * len(layout.entries)
    trained = [math.prod(shape) for shape, part in drawn if part != "statistic"]
    assert layout.parameter_count() == sum(trained)


@pytest.mark.parametrize("label", ALL)
def test_a_plan_of_training_and_of_prediction_have_one_layout(label):
    """Else what was trained could not be predicted with, nor a model file be read."""
    plans = [make_plan(ALL[label], shape_of(label), c, loss=loss) for c in (1, 5) for loss in (None, CrossEntropy())]
    assert all(plan.layout == plans[0].layout for plan in plans)


NET = Sequential(Conv2d(1, 3, 2, bias=False), BatchNorm2d(3), Flatten(), Linear(27, 5))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_hash_is_of_every_parameter_in_the_order_of_the_net_and_of_nothing_else(dtype):
    plan = make_plan(NET, (4, 4, 1), 1, loss=CrossEntropy(), dtype=dtype)
    layout, state = plan.layout, initial_state(plan, 0)
    rng = np.random.default_rng(0)
    for entry in layout.parameters:
        layout.get(state, entry)[...] = rng.standard_normal(entry.shape)
    names = ["0.weight", "1.weight", "1.bias", "3.weight", "3.bias"]
    arrays = layout.arrays(state)
    flat = np.concatenate([arrays[name].astype("<f4").ravel() for name in names])
    original = layout.sha256(state)
    assert original == hashlib.sha256(flat.tobytes()).hexdigest()

    trained = np.zeros(layout.size, bool)
    for entry in layout.parameters:
        trained[entry.offset : entry.offset + entry.size] = True
    assert trained.sum() == len(flat) == layout.parameter_count()
    for place in range(layout.size):
        kept = state[place]
        state[place] = np.nextafter(np.float32(kept), np.float32(9))
        assert (layout.sha256(state) != original) == trained[place], place
        state[place] = kept
    assert (~trained).sum() > 6  # padding and running statistics were among the places


def test_initial_state_depends_on_all_64_bits_of_the_seed_and_on_nothing_else():
    plans = [make_plan(NET, (4, 4, 1), chunk, 2 * chunk, loss=CrossEntropy()) for chunk in (1, 6)]
    seeds = [0, 1, 2**32, 2**32 + 1, 2**63 - 1]
    hashes = {seed: {plan.layout.sha256(initial_state(plan, seed)) for plan in plans} for seed in seeds}
    assert all(len(values) == 1 for values in hashes.values())
    assert len(set.union(*hashes.values())) == len(seeds)
    state = initial_state(plans[0], 0)
    arrays = plans[0].layout.arrays(state)
    assert (arrays["1.running_mean"] == 0).all() and (arrays["1.running_var"] == 1).all()
    assert (arrays["1.weight"] == 1).all() and (arrays["1.bias"] == 0).all()


@pytest.mark.parametrize("name", models.MODELS)
def test_initial_weights_are_uniform_within_the_root_of_the_fan_in(name):
    """PyTorch's default for convolutions, dense layers and their biases: U(−1/√fan_in, 1/√fan_in)."""
    plan = make_plan(models.get(name), models.INPUT_SHAPES[name], 1)
    arrays = plan.layout.arrays(initial_state(plan, 3))
    for key, weight in arrays.items():
        if not key.endswith(".weight") or weight.ndim == 1:
            continue
        twins = [k for k, other in arrays.items() if other.size > 1 and other.flat[0] == weight.flat[0]]
        assert twins == [key]  # each parameter has its own numbers
        bound = 1 / math.sqrt(math.prod(weight.shape[:-1]))
        for values in (weight, arrays.get(key.replace(".weight", ".bias"), weight)):
            assert np.abs(values).max() <= bound
            if values.size >= 64:
                assert np.abs(values).max() > 0.9 * bound
                assert abs(values.mean()) < 5 * bound / math.sqrt(3 * values.size)
                assert values.std() == pytest.approx(bound / math.sqrt(3), rel=4 / math.sqrt(values.size))
