"""Random numbers are functions of what they are for: known answers, and no trace of chunks, order or workers."""

import numpy as np
import pytest
from nets import Chunk, some_batch

from corenet.engine import make_plan
from corenet.kernels import clock as places
from corenet.kernels import dropout, gather
from corenet.kernels.backend import Backend, numba_problem
from corenet.kernels.philox import permutation, philox, philox_block
from corenet.nn import CrossEntropy, Dropout, Flatten, Linear, ReLU, Residual, Sequential

needs_numba = pytest.mark.skipif(numba_problem() is not None, reason="Numba is not installed")
NUMBA = Backend("numba", 1, "test")


def definition(operation, *args):
    operation.reference(*args)


def compiled(operation, *args):
    NUMBA.function(operation, args)(*args)


RUNNERS = [pytest.param(definition, id="numpy"), pytest.param(compiled, id="numba", marks=needs_numba)]

# Philox 4×32-10 in Random123's kat_vectors: counter, key, answer.
KNOWN = [
    ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
]


def words(text):
    return [int(word, 16) for word in text.split()]


@pytest.mark.parametrize("counter, key, answer", KNOWN)
def test_philox_gives_the_known_answers(counter, key, answer):
    numbers = [np.uint64(word) for word in words(counter) + words(key)]
    assert [int(word) for word in philox(*numbers)] == words(answer)
    arrays = [np.full(3, number) for number in numbers[:4]]
    assert [word.tolist() for word in philox(*arrays, *numbers[4:])] == [[word] * 3 for word in words(answer)]
    above = [number | np.uint64(5 << 32) for number in numbers]  # only the low half of each word counts
    assert [int(word) for word in philox(*above)] == words(answer)


@needs_numba
def test_compiled_philox_gives_the_known_answers():
    import numba

    from corenet.kernels.numba_backend import _device

    compiled = _device(philox)  # which only compiled code can call

    @numba.njit
    def call(c0, c1, c2, c3, k0, k1):
        return compiled(c0, c1, c2, c3, k0, k1)

    for counter, key, answer in KNOWN:
        numbers = [np.uint64(word) for word in words(counter) + words(key)]
        assert [int(word) for word in call(*numbers)] == words(answer)


# Order.

SEEDS = [0, 1, 7, 2**31, 2**32, 2**32 + 1, 2**53 + 1, 2**63 - 1]


@pytest.mark.parametrize("n", [1, 2, 101, 10_000])
def test_order_is_a_permutation(n):
    order = permutation(7, 3, n)
    assert order.dtype == np.int64 and sorted(order.tolist()) == list(range(n))


def test_order_differs_by_epoch_and_by_all_64_bits_of_the_seed():
    orders = {(seed, epoch): tuple(permutation(seed, epoch, 100)) for seed in SEEDS for epoch in range(4)}
    assert len(set(orders.values())) == len(orders)
    assert orders == {(seed, epoch): tuple(permutation(seed, epoch, 100)) for seed, epoch in orders}


def test_order_has_no_preference():
    """Where a sample lands, averaged over epochs, is the middle, and neighbours do not stay together."""
    orders = np.array([permutation(5, epoch, 64) for epoch in range(400)])
    place = orders.argsort(axis=1)
    sigma = np.sqrt((64**2 - 1) / 12 / 400)
    assert np.abs(place.mean(axis=0) - 31.5).max() < 4.5 * sigma
    assert abs((np.diff(orders, axis=1) == 1).mean() - 1 / 64) < 5 * np.sqrt(1 / 64 / (400 * 63))


# Dropout.


def clock(seed=0, step=0, epoch=0):
    values = np.zeros(places.SIZE, np.int64)
    values[[places.SEED, places.STEP, places.EPOCH]] = seed, step, epoch
    return values


def mask(run, samples, features=1000, *, seed=0, step=0, layer=1, p=0.25, n=None):
    """Which elements are kept, per sample."""
    samples = np.asarray(samples)
    n = len(samples) if n is None else n
    x, kept = np.ones((len(samples), features), np.float32), np.full((len(samples), features), 9, np.uint8)
    y = np.full_like(x, np.nan)
    run(dropout.forward, n, x, y, kept, samples, clock(seed, step), layer, p)
    assert (y[:n] == np.where(kept[:n], np.float32(1 / (1 - p)), 0)).all() and (kept[n:] == 9).all()
    return kept[:n]


@pytest.mark.parametrize("run", RUNNERS)
@pytest.mark.parametrize("p", [0.0, 0.1, 0.5, 0.9, 1 - 2**-20])
def test_dropout_keeps_its_share_and_the_mean(run, p):
    kept = mask(run, np.arange(64), 999, p=p)
    sigma = np.sqrt(p * (1 - p) / kept.size)
    assert abs(kept.mean() - (1 - p)) <= 4.5 * sigma
    if p == 0.5:
        assert np.abs(kept.mean(axis=0) - 0.5).max() < 5 * np.sqrt(0.25 / 64)  # every place alike
        assert np.abs(kept.mean(axis=1) - 0.5).max() < 5 * np.sqrt(0.25 / 999)


@pytest.mark.parametrize("run", RUNNERS)
def test_dropout_is_independent_between_whatever_it_is_keyed_by(run):
    """Any two masks agree as often as coins do, none twice the same."""
    masks = {("sample", s): mask(run, [s], p=0.5)[0] for s in (0, 1, 2, 65536, 2**31)}
    masks |= {("step", s): mask(run, [0], step=s, p=0.5)[0] for s in (1, 2, 70_000, 2**31)}
    masks |= {("layer", n): mask(run, [0], layer=n, p=0.5)[0] for n in (0, 2, 3, 40)}
    masks |= {("seed", s): mask(run, [0], seed=s, p=0.5)[0] for s in SEEDS if s}
    masks |= {("part", i): np.roll(masks["sample", 0], 4 * i) for i in (1, 2)}  # words and groups within a sample
    masks |= {("word", i): np.roll(masks["sample", 0], i) for i in (1, 2, 3)}
    values = list(masks.items())
    for i, (what, a) in enumerate(values):
        for other, b in values[:i]:
            assert abs((a == b).mean() - 0.5) < 5 * np.sqrt(0.25 / 1000), (what, other)


@pytest.mark.parametrize("run", RUNNERS)
def test_dropout_does_not_depend_on_the_chunk(run):
    """A sample's mask is its own, wherever in whatever chunk it is."""
    samples = np.random.default_rng(0).permutation(1000)[:12]
    whole = mask(run, samples, 37)
    for size in (1, 5, 12):
        parts = [mask(run, samples[i : i + size], 37) for i in range(0, 12, size)]
        assert (np.concatenate(parts) == whole).all()
    assert (mask(run, samples, 37, n=7) == whole[:7]).all()
    assert (mask(run, samples[::-1].copy(), 37)[::-1] == whole).all()
    assert (mask(run, samples, 20) == whole[:, :20]).all()  # nor on the features behind


def test_layers_of_a_net_drop_different_elements():
    """Two dropout layers of one shape, wherever in the net, each with numbers of its own."""
    net = Sequential(Dropout(0.5), Residual(Dropout(0.5), Sequential(ReLU(), Dropout(0.5))), Dropout(0.5), Flatten())
    plan = make_plan(Sequential(net, Linear(400, 3)), (10, 10, 4), 1, loss=CrossEntropy())
    chunk = Chunk(plan, apart=True)
    chunk.run(*some_batch(1, (10, 10, 4)))
    masks = [call.args[2] for call in chunk.program.calls() if call.operation is dropout.forward]
    assert len(masks) == 4
    for i, a in enumerate(masks):
        for b in masks[:i]:
            assert abs((a == b).mean() - 0.5) < 5 * np.sqrt(0.25 / 400)


def test_both_kinds_of_dropout_agree():
    if numba_problem() is None:
        for seed in SEEDS:
            assert (mask(definition, [3, 2**40], 13, seed=seed) == mask(compiled, [3, 2**40], 13, seed=seed)).all()


# Augmentation.


def pictures(run, order, *, source=None, seed=0, epoch=0, shift=2, flip=True, first=0, n=None):
    """What the net gets to see of the samples in order[first:]."""
    source = SOURCE if source is None else source
    order = np.asarray(order)
    n = len(order) - first if n is None else n
    x = np.full((n, *source.shape[1:]), np.nan, np.float32)
    samples = np.full(n, -1)
    one, zero = np.ones(source.shape[3], np.float32), np.zeros(source.shape[3], np.float32)
    run(gather.images, n, source, order, first, x, samples, one, zero, clock(seed, 0, epoch), shift, flip)
    assert (samples == order[first : first + n]).all()
    return x


SOURCE = np.random.default_rng(0).integers(1, 256, (50, 6, 5, 2)).astype(np.uint8)
SAME = np.repeat(SOURCE[:1], 50, axis=0)  # fifty samples of one picture: what differs is the augmentation


@pytest.mark.parametrize("run", RUNNERS)
def test_augmentation_differs_between_samples_and_epochs_and_seeds(run):
    order = np.arange(50)
    views = {
        key: pictures(run, order, source=SAME, epoch=key[0], seed=key[1])
        for key in [(0, 0), (1, 0), (2, 0), (0, 1), (0, 2**32), (0, 2**63 - 1)]
    }
    for view in views.values():
        assert len({image.tobytes() for image in view}) > 25  # of 2·5·5 possible
    keys = list(views)
    for i, key in enumerate(keys):
        for other in keys[:i]:
            equal = (views[key] == views[other]).all(axis=(1, 2, 3))
            assert equal.mean() < 0.2, (key, other)


@pytest.mark.parametrize("run", RUNNERS)
def test_augmentation_does_not_depend_on_the_chunk(run):
    order = np.random.default_rng(1).permutation(50)
    whole = pictures(run, order)
    for size in (1, 7, 50):
        parts = [pictures(run, order, first=i, n=min(size, 50 - i)) for i in range(0, 50, size)]
        assert (np.concatenate(parts) == whole).all()
    assert (pictures(run, np.arange(50))[order] == whole).all()


@pytest.mark.parametrize("run", RUNNERS)
def test_every_shift_and_flip_happens_and_nothing_else(run):
    """Each view is the picture moved by −2 … 2 pixels each way, maybe mirrored, with zeros from outside."""
    bordered = np.pad(SOURCE[0], ((2, 2), (2, 2), (0, 0))).astype(np.float32)
    possible = {}
    for top in range(5):
        for left in range(5):
            image = bordered[top : top + 6, left : left + 5]
            possible[image.tobytes()] = (top, left, False)
            possible[np.ascontiguousarray(image[:, ::-1]).tobytes()] = (top, left, True)
    assert len(possible) == 50
    seen = [
        possible[image.tobytes()]
        for epoch in range(20)
        for image in pictures(run, np.arange(50), source=SAME, epoch=epoch)
    ]
    times = {key: seen.count(key) for key in possible.values()}
    assert min(times.values()) >= 5 and max(times.values()) <= 45  # 20 each on average
    assert abs(sum(mirrored for *_, mirrored in seen) - 500) < 80


@pytest.mark.parametrize("run", RUNNERS)
def test_without_augmentation_images_are_scaled_only(run):
    order = np.array([3, 1, 4, 1, 5])
    x, samples = np.full((5, 6, 5, 2), np.nan, np.float32), np.zeros(5, np.int64)
    scale, offset = np.array([0.5, 2], np.float32), np.array([1, -1], np.float32)
    run(gather.images, 5, SOURCE, order, 0, x, samples, scale, offset, clock(), 0, False)
    assert (x == SOURCE[order] * scale + offset).all()
    flipped = pictures(run, order, shift=0, flip=True)
    plain = SOURCE[order].astype(np.float32)
    assert all((a == b).all() or (a == b[:, ::-1]).all() for a, b in zip(flipped, plain, strict=True))


def test_a_block_of_words_is_philox_of_each_counter():
    for first, count in ((0, 1), (5, 7), (2**32 - 3, 8)):  # the counter is a word of 32 bits: it begins again
        words = np.empty((4, count), np.uint64)
        rest = [np.uint64(value) for value in (2**40 + 3, 11, 2, 2**33 + 5, 2**32 - 1)]
        philox_block(np.uint64(first), *rest, words)
        counters = np.arange(first, first + count, dtype=np.uint64)
        assert (words == np.stack(philox(counters, *rest))).all()
