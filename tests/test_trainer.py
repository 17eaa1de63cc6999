"""The Trainer: exact arithmetic, a step that allocates nothing, one copy of the data, errors that say what to do."""

import gc
import json
import math
import re
import tracemalloc
from collections import Counter

import numpy as np
import psutil
import pytest
from conftest import CLASSES, Ranks, images

import corenet
from corenet import nn, optim
from corenet.datasets import from_arrays
from corenet.errors import ConfigError, CorenetError, DataError, ShapeError, TrainingError
from corenet.parallel.balance import Balancer, Equal
from corenet.parallel.chunks import ChunkRunner
from corenet.parallel.crew import Crew


def dense(inputs: int = 36, classes: int = CLASSES) -> nn.Sequential:
    return nn.Sequential(nn.Flatten(), nn.Linear(inputs, classes))


# Every sample once per epoch.


@pytest.mark.parametrize(
    "n, batch, workers",
    [(101, 16, 3), (5, 2, 3), (7, 7, 3), (3, 16, 2), (1, 1, 2), (64, 16, 2), (33, 32, 1), (20, 3, 4)],
)
def test_each_sample_is_used_exactly_once(trainer, n, batch, workers):
    # Sample i lights pixel i alone, so row i of the weights moves by what sample i contributes, and by nothing else:
    # rate · (softmax − one-hot) / samples of its batch, once.
    x = np.eye(n, dtype=np.float32).reshape(n, n, 1, 1)
    y = np.arange(n) % 3
    net = nn.Sequential(nn.Flatten(), nn.Linear(n, 3, bias=False))
    made = trainer(net, optim.SGD(1.0), workers=workers, kernels="numpy", chunk=2)
    made.evaluate((x, y))
    last_batches = set()
    for _ in range(3):
        before = made.parameters()["1.weight"].astype(np.float64)
        made.fit((x, y), batch_size=batch, callbacks=())
        moved = before - made.parameters()["1.weight"]
        once = np.exp(before) / np.exp(before).sum(axis=1, keepdims=True) - np.eye(3)[y]
        shares = (moved * once).sum(axis=1) / (once * once).sum(axis=1)  # of which size was its batch?
        np.testing.assert_allclose(moved, once * shares[:, None], atol=1e-6)
        sizes = Counter(np.rint(1 / shares).astype(int).tolist())
        assert sizes == Counter([batch] * (n // batch * batch) + [n % batch] * (n % batch))
        assert sum(worker.samples for worker in made.history.workers) == n
        last_batches.add(tuple(np.flatnonzero(np.rint(1 / shares) != batch)))
    if (n, batch) == (101, 16):  # five of 101 are in the last batch, others in each epoch
        assert len(last_batches) == 3


def test_the_order_is_the_seeds(trainer):
    x, y = images(20)
    losses = {}
    for seed in (0, 1):
        made = trainer(nn.Sequential(nn.Flatten(), nn.Linear(36, CLASSES)), optim.SGD(1.0), seed=seed, kernels="numpy")
        made.evaluate((x, y))
        made._session._state[:] = 0  # the seed gives the parameters, too
        losses[seed] = made.fit((x, y), batch_size=2, callbacks=())["loss"]
    assert losses[0] != losses[1]


def test_an_optimizer_counts_its_steps(trainer):
    # One batch per epoch, so the order does not matter. Adam by its formulas, in double precision.
    x, y = images(30, np.float32)
    made = trainer(dense(), optim.Adam(0.01), workers=2, kernels="numpy")
    made.evaluate((x, y))
    w, b = (array.astype(np.float64) for array in made.parameters().values())
    first, second = np.zeros((37, CLASSES)), np.zeros((37, CLASSES))
    inputs = np.c_[x.reshape(30, 36), np.ones(30)]
    theta = np.r_[w, b[None]]
    for step in range(1, 7):
        softmax = np.exp(inputs @ theta)
        softmax /= softmax.sum(axis=1, keepdims=True)
        gradient = inputs.T @ (softmax - np.eye(CLASSES)[y]) / 30
        first, second = 0.9 * first + 0.1 * gradient, 0.999 * second + 0.001 * gradient**2
        theta -= 0.01 * (first / (1 - 0.9**step)) / (np.sqrt(second / (1 - 0.999**step)) + 1e-8)
    for epochs in (1, 3, 2):
        made.fit((x, y), epochs=epochs, batch_size=30, callbacks=())
    got = made.parameters()
    np.testing.assert_allclose(np.r_[got["1.weight"], got["1.bias"][None]], theta, atol=2e-6)


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_compiling_is_dealt_and_counted(trainer, workers):
    class Count(corenet.train.Callback):
        def on_compile(self, done, total):
            counts.append((done, total))

    counts: list[tuple[int, int]] = []
    made = trainer(small_conv(), optim.Adam(), workers=workers, kernels="numpy")
    made.fit(images(9, shape=(5, 5, 2)), validation=images(9, shape=(5, 5, 2)), callbacks=[Count()])
    totals = {total for _, total in counts}
    assert len(totals) == 1 and [done for done, _ in counts] == list(range(1, totals.pop() + 1))
    counts.clear()
    made.fit(images(9, shape=(5, 5, 2)), callbacks=[Count()])
    assert counts == []  # nothing is left to do


def test_what_workers_did_is_recorded(trainer):
    made = trainer(dense(), workers=3, kernels="numpy")
    history = made.fit(images(), epochs=3, batch_size=16, callbacks=())
    samples = [worker.samples for worker in history.workers]
    assert sum(samples) == 3 * 101 and min(samples) > 0
    assert [worker.rank for worker in history.workers] == [0, 1, 2]
    assert all(worker.compute > 0 and worker.wait >= 0 for worker in history.workers)
    assert history["epoch"] == [1, 2, 3] and history.seconds_train == pytest.approx(sum(history["seconds"]))
    assert json.loads(history.to_json())["workers"][2]["samples"] == samples[2]


# The gradient of the mean.


class Slices(Balancer):
    """These borders, whatever would be fair."""

    def __init__(self, *sizes: int):
        self.sizes = sizes

    def borders(self, chunks: int, workers: int) -> tuple[int, ...]:
        assert chunks == sum(self.sizes) and workers == len(self.sizes)
        return tuple(sum(self.sizes[:w]) for w in range(workers + 1))


def small_conv() -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(2, 3, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(75, CLASSES))


def mean_gradient(parameters: dict[str, np.ndarray], x: np.ndarray, y: np.ndarray) -> dict[str, np.ndarray]:
    """The gradient of small_conv's mean loss over all samples at once, written out in NumPy and double precision."""
    w, b, v, c = (parameters[name].astype(np.float64) for name in ("0.weight", "0.bias", "3.weight", "3.bias"))
    padded = np.pad(x.astype(np.float64), ((0, 0), (1, 1), (1, 1), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(1, 2))  # n p q c r s
    z = np.einsum("npqcrs,rsck->npqk", windows, w) + b
    features = np.maximum(z, 0).reshape(len(x), -1)
    logits = features @ v + c
    softmax = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    d_logits = (softmax - np.eye(CLASSES)[y]) / len(x)
    dz = (d_logits @ v.T).reshape(z.shape) * (z > 0)
    return {
        "0.weight": np.einsum("npqcrs,npqk->rsck", windows, dz),
        "0.bias": dz.sum(axis=(0, 1, 2)),
        "3.weight": features.T @ d_logits,
        "3.bias": d_logits.sum(axis=0),
    }


def assert_gradients_agree(got: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert got.keys() == expected.keys()
    for name, gradient in expected.items():
        np.testing.assert_allclose(got[name], gradient, rtol=1e-4, atol=1e-5 * np.abs(gradient).max(), err_msg=name)


@pytest.mark.parametrize("kernels", ["numba", "numpy"])
@pytest.mark.parametrize("sizes", [(3, 1), (7, 6), (5, 0), (0, 5), (2, 0, 7)], ids=str)
def test_unequal_slices_give_the_gradient_of_the_mean(sizes, kernels):
    x, y = images(sum(sizes), np.float32, shape=(5, 5, 2))
    setting = {"chunk": 1, "batch": len(x), "workers": len(sizes), "balancer": Slices(*sizes), "kernels": kernels}
    ranks = Ranks(small_conv(), optim.SGD(0.5), x, y, **setting)
    before = {name: array.copy() for name, array in ranks.state().items()}
    ranks.epoch()
    expected = mean_gradient(before, x, y)
    assert_gradients_agree(ranks.gradient(), expected)
    moved = {name: (before[name] - array) / 0.5 for name, array in ranks.state().items()}
    for name, gradient in expected.items():
        np.testing.assert_allclose(moved[name], gradient, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("n, batch, chunk, workers", [(7, 7, 1, 3), (13, 13, 2, 2), (5, 8, 2, 3), (9, 9, 5, 2)])
def test_workers_take_the_step_of_the_mean_gradient(trainer, n, batch, chunk, workers):
    x, y = images(n, np.float32, shape=(5, 5, 2))
    made = trainer(small_conv(), optim.SGD(0.5), workers=workers, chunk=chunk)
    made.evaluate((x, y))
    before = made.parameters()
    made.fit((x, y), batch_size=batch, callbacks=())
    after, expected = made.parameters(), mean_gradient(before, x, y)
    for name, gradient in expected.items():
        np.testing.assert_allclose((before[name] - after[name]) / 0.5, gradient, atol=1e-6, err_msg=name)


def test_running_statistics_are_those_of_whole_batches(trainer):
    # Two batches of 8 and 5, in chunks of 3, 3, 2 and 3, 2. The layer sees the images themselves.
    x, y = images(13, np.float32, shape=(4, 4, 2))
    net = nn.Sequential(nn.BatchNorm2d(2, momentum=0.25), nn.Flatten(), nn.Linear(32, CLASSES))
    made = trainer(net, optim.SGD(0.1), workers=2, chunk=3)
    made.fit((x, y), batch_size=8, callbacks=())
    # Which samples came first shows in the result; of the two orders of the batches' sizes there is only one.
    order = corenet.train.run.permutation(0, 0, 13)
    mean, variance = np.zeros(2), np.ones(2)
    for batch in (order[:8], order[8:]):
        flat = x[batch].reshape(-1, 2).astype(np.float64)
        mean = 0.75 * mean + 0.25 * flat.mean(axis=0)
        variance = 0.75 * variance + 0.25 * flat.var(axis=0, ddof=1)
    got = made.parameters()
    np.testing.assert_allclose(got["0.running_mean"], mean, rtol=1e-5)
    np.testing.assert_allclose(got["0.running_var"], variance, rtol=1e-5)


# The hot loop.


def hot_loop(kernels: bool = True) -> Ranks:
    """What one worker runs, or all of it but the kernels; on images so large that a forgotten array stands out."""
    x, y = images(64, shape=(32, 32, 1))
    net = nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Residual(nn.Conv2d(4, 4, 1)),
        nn.Dropout(0.3), nn.Flatten(), nn.Linear(1024, CLASSES),
    )  # fmt: skip
    ranks = Ranks(net, optim.Adam(1e-3), x, y, chunk=4, batch=8, balancer=Equal())
    if not kernels:
        for call in ranks.ranks[0].calls():
            call.run = lambda *args: None
    ranks.epoch()  # warm
    return ranks


def traced(ranks: Ranks, epochs: int) -> tuple[int, int]:
    """Bytes that Python and NumPy hold more after these epochs, and the most that they held at once meanwhile."""
    order = np.arange(len(ranks.x))
    tracemalloc.start()
    try:
        ranks.epoch(order)
        gc.collect()  # which also empties the lists of freed tuples that Python keeps
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        for _ in range(epochs):
            ranks.epoch(order)
        _, peak = tracemalloc.get_traced_memory()
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return after - before, peak - before


def test_a_step_allocates_nothing():
    grown, peak = traced(hot_loop(kernels=False), 1)  # 8 steps, 16 chunks
    assert grown < 200
    assert peak < 6000  # some numbers and views, each for a moment; the images of one chunk alone take 16 kB


def test_nothing_grows_in_many_steps():
    grown, peak = traced(hot_loop(), 20)
    assert grown < 200
    assert peak < 60_000  # the tables of places that nests make for a call


def with_load(monkeypatch, extra) -> None:
    load = ChunkRunner.load
    monkeypatch.setattr(ChunkRunner, "load", lambda self, *args: (extra(), load(self, *args)))


def test_the_meter_sees_an_array_in_the_loop(monkeypatch):
    with_load(monkeypatch, lambda: np.zeros((4, 32, 32, 1), np.float32))
    assert traced(hot_loop(kernels=False), 1)[1] > 16_000


def test_the_meter_sees_a_leak(monkeypatch):
    kept: list[float] = []
    with_load(monkeypatch, lambda: kept.append(float(len(kept))))
    assert traced(hot_loop(kernels=False), 1)[0] > 200


def test_nothing_is_compiled_in_the_loop():
    ranks = hot_loop()
    rank = ranks.ranks[0]
    codes = {call.run for call in rank.calls() if hasattr(call.run, "signatures")}
    assert len(codes) > 15
    assert all(len(code.signatures) >= 1 for code in codes)

    def compiled():  # and loaded or asked for, successfully or not
        return {code: (len(code.signatures), len(code._cache_hits), len(code._cache_misses)) for code in codes}

    before = compiled()
    ranks.epoch()
    assert compiled() == before


# Data.


def test_the_data_set_is_in_memory_once():
    # What counts for a worker is its part of pages that several share: the sum over workers is what they really take.
    x, y = np.full((400, 224, 224, 1), 7, np.uint8), np.arange(400) % CLASSES  # 20 MB
    net = nn.Sequential(
        nn.Conv2d(1, 1, 8, stride=56), nn.Flatten(), nn.Linear(16, CLASSES)
    )  # which looks at little of it
    taken = {}
    for workers in (1, 3):
        with corenet.Trainer(net, workers=workers, share_cores=True, kernels="numpy") as made:
            for size in (4, 400):
                made.fit((x[:size], y[:size]), batch_size=4, callbacks=())
                processes = [psutil.Process(process.pid) for process in made._crew.processes]
                taken[workers, size] = sum(process.memory_full_info().pss for process in processes)
    for workers in (1, 3):
        assert taken[workers, 400] - taken[workers, 4] < 1.3 * x.nbytes, f"{workers} workers"


def test_an_array_changed_in_place_is_seen_by_the_next_fit(trainer):
    x, y = images()
    x, y = x.copy(), y.astype(np.int64)
    changed = np.ascontiguousarray(255 - x)
    results = []
    for in_place in (True, False):
        made = trainer(dense(), optim.SGD(0.1), workers=2, kernels="numpy")
        data = from_arrays(x.copy(), y.copy())
        made.fit(data, callbacks=())
        if in_place:
            data.x[:], data.y[:] = changed, (y + 1) % CLASSES
        else:
            data = from_arrays(changed, (y + 1) % CLASSES)
        assert made.evaluate(data) == made.evaluate((changed, (y + 1) % CLASSES))
        made.fit(data, callbacks=())
        results.append(made.params_sha256())
    assert results[0] == results[1]


def test_the_callers_arrays_are_left_alone(trainer):
    x, y = images()
    kept = x.copy(), y.copy()
    x.flags.writeable = y.flags.writeable = False
    made = trainer(dense(), workers=2, kernels="numpy")
    made.fit((x, y), callbacks=())
    made.predict(x)
    assert (x == kept[0]).all() and (y == kept[1]).all()


def test_epochs_are_counted_over_all_calls(trainer, capsys):
    made = trainer(dense(), kernels="numpy")
    made.fit(images(), epochs=2)
    made.fit(images())
    lines = [line.split()[:2] for line in capsys.readouterr().out.splitlines() if line.startswith("epoch")]
    assert lines == [["epoch", "1/2"], ["epoch", "2/2"], ["epoch", "3/3"]]


def test_a_callback_may_use_other_data_sets(trainer):
    class Watch(corenet.train.Callback):
        def on_epoch(self, record, epochs):
            seen.append([made.evaluate(images(9, seed=seed))["loss"] for seed in range(5)])

    seen: list = []
    made = trainer(dense(), workers=2, kernels="numpy")
    others = len(made._crew.segments)
    made.fit(images(), epochs=3, callbacks=[Watch()])
    plain = made.params_sha256()
    assert len(seen) == 3
    assert len(made._crew.segments) - others <= 5  # state, batch, two data sets: the rest was given back
    made = trainer(dense(), workers=2, kernels="numpy")
    made.fit(images(), epochs=3, callbacks=())
    assert made.params_sha256() == plain


def test_a_callback_may_not_use_the_workers_while_they_train(trainer):
    class Predict(corenet.train.Callback):
        def on_progress(self, progress):
            made.predict(x)

    x, y = images(20_000)
    made = trainer(dense(), workers=2, kernels="numpy")
    with pytest.raises(ConfigError, match="on_epoch"):
        made.fit((x, y), batch_size=1, callbacks=[Predict()])
    assert made.predict(x[:3]).shape == (3, CLASSES)  # the workers are still there, and of one mind
    assert made.fit((x[:50], y[:50]), callbacks=())["epoch"] == [1]


def test_predicting_first_does_not_decide_the_scaling(trainer):
    x, y = images()
    data = from_arrays(x, y, mean=0.3, std=0.2, classes=list("abcd"))
    made = trainer(dense(), optim.SGD(0.1), kernels="numpy")
    made.predict(x[:5])
    made.evaluate((x, y))
    made.fit(data, callbacks=())
    got = made.params_sha256()
    assert made.classes == tuple("abcd")
    made = trainer(dense(), optim.SGD(0.1), kernels="numpy")
    made.fit(data, callbacks=())
    assert made.params_sha256() == got


def test_a_batch_far_larger_than_the_set_takes_no_more_memory(trainer):
    made = trainer(small_conv(), kernels="numpy", workers=2)
    made.fit(images(20, shape=(5, 5, 2)), batch_size=2**40, callbacks=())
    assert made._crew.segments["batch"].size < 1e6


# Mistakes. Each is one clear error, before a worker does any work.


def conv_net(**changes):
    sizes = {"channels": 1, "features": 36, "classes": CLASSES, **changes}
    return nn.Sequential(
        nn.Conv2d(sizes["channels"], 1, 3, padding=1), nn.Flatten(), nn.Linear(sizes["features"], sizes["classes"])
    )


X, Y = images(12)
NAN = X.astype(np.float32)
NAN[3, 2, 1, 0] = np.nan


def fit(*data, net=dense, settings=None, **how):
    return lambda: corenet.Trainer(net(), **{"kernels": "numpy", **(settings or {})}).fit(data, **how)


def made_with(**settings):
    return lambda: corenet.Trainer(dense(), **settings)


MISTAKES = {
    "features do not match": (fit(X, Y, net=lambda: dense(35)), ShapeError, r"layer 1 \(Linear\).*35.*in_features=36"),
    "channels do not match": (fit(X, Y, net=lambda: conv_net(channels=3)), ShapeError, r"layer 0 .*channels=1"),
    "no Flatten": (fit(X, Y, net=lambda: nn.Sequential(nn.Linear(36, 4))), ShapeError, r"layer 0 \(Linear\).*Flatten"),
    "no vector at the end": (fit(X, Y, net=lambda: nn.Sequential(nn.ReLU())), ShapeError, "2 classes.*Flatten"),
    "label out of range": (fit(X, Y + 1), DataError, "label.*0 to 3.*got 4 at index"),
    "negative label": (fit(X, Y - 1), DataError, "0 to 3, for 4 classes, or -100 .ignored., got -1 at index"),
    "float labels": (fit(X, Y.astype(float)), DataError, "labels.*integers.*float32.*astype"),
    "one-hot labels": (fit(X, np.eye(4)[Y]), DataError, r"labels.*shape \(n,\).*argmax"),
    "NaN": (fit(NAN, Y), DataError, r"finite.*nan at index \(3, 2, 1, 0\)"),
    "no samples": (fit(X[:0], Y[:0]), DataError, "empty"),
    "no labels": (lambda: corenet.Trainer(dense()).fit(X), DataError, "no labels"),
    "unequal numbers": (fit(X, Y[:-1]), DataError, "12 labels.*got 11"),
    "batch of 0": (fit(X, Y, batch_size=0), ConfigError, "batch_size: expected an integer of at least 1, got 0"),
    "batch of 1.5": (fit(X, Y, batch_size=1.5), ConfigError, "batch_size.*got 1.5"),
    "a mask of nothing": (fit(X, Y * 0 - 100), DataError, r"nothing to learn from 'arrays'.*CrossEntropy\(.*-100"),
    "weights of nothing": (
        fit(X, Y * 0, settings={"loss": nn.CrossEntropy([0, 1, 1, 1])}), DataError, "nothing to learn"
    ),
    "a group of nothing": (
        fit(X, Y, settings={"optimizer": optim.SGD(0.1, groups=[optim.NO_DECAY, optim.Group("linear.*")])}),
        ConfigError, r"Group\(names=…\): expected a pattern that matches some of 1.weight, 1.bias, got 'linear\.\*'",
    ),
    "channels first": (
        fit(X.reshape(12, 1, 6, 6), Y, net=lambda: nn.Sequential(nn.BatchNorm2d(1), nn.Sequential(conv_net()))),
        ShapeError, r"'arrays'.*\(1, 6, 6\), which would fit as \(6, 6, 1\).*transpose\(0, 2, 3, 1",
    ),
    "no epochs": (fit(X, Y, epochs=0), ConfigError, "epochs.*got 0"),
    "callbacks that are none": (fit(X, Y, callbacks=print), ConfigError, "callbacks.*list of.*Callback"),
    "validation of another size": (fit(X, Y, validation=(X[:, :5], Y)), ShapeError, r"\(6, 6, 1\).*\(5, 6, 1\)"),
    "too many workers": (made_with(workers=4096), ConfigError, "workers x threads.*4096.*share_cores"),
    "no workers": (made_with(workers=0), ConfigError, "workers.*at least 1.*got 0"),
    "no threads": (made_with(threads=0), ConfigError, "threads.*got 0"),
    "unknown loss": (made_with(loss="hinge"), ConfigError, "loss.*'cross_entropy'.*got 'hinge'"),
    "unknown strategy": (made_with(strategy="async"), ConfigError, "strategy.*'sync'.*got 'async'"),
    "unknown balance": (made_with(balance="fair"), ConfigError, "balance.*'equal'.*got 'fair'"),
    "unknown kernels": (made_with(kernels="cuda"), ConfigError, "kernels.*'numba'.*got 'cuda'"),
    "chunk of 0": (made_with(chunk=0), ConfigError, "chunk.*got 0"),
    "negative seed": (made_with(seed=-1), ConfigError, "seed.*got -1"),
    "seed too large": (made_with(seed=2**63), ConfigError, "seed.*got 9223372036854775808"),
    "no net": (lambda: corenet.Trainer("lenet5"), ConfigError, "net.*corenet.nn.*'lenet5'"),
    "no optimizer": (made_with(optimizer="adam"), ConfigError, "optimizer.*corenet.optim.*'adam'"),
    "save before fit": (lambda: corenet.Trainer(dense()).save("x"), ConfigError, "no parameters yet.*Call fit first"),
    "hash before fit": (lambda: corenet.Trainer(dense()).params_sha256(), ConfigError, "no parameters yet"),
}  # fmt: skip


@pytest.mark.parametrize("mistake, kind, message", MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_named_before_any_work(monkeypatch, mistake, kind, message):
    monkeypatch.setattr(Crew, "_seat", lambda self, rank, seat: pytest.fail("a worker was started"))
    with pytest.raises(CorenetError, match=message) as caught:
        mistake()
    assert type(caught.value) is kind
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 300


@pytest.mark.parametrize("shape", [(3, 5, 6, 1), (3, 6, 6, 3), (3, 28, 28)])
def test_images_of_another_size_are_refused_and_the_trainer_stays(trainer, shape):
    made = trainer(dense(), workers=2, kernels="numpy")
    made.fit((X, Y), callbacks=())
    before = made.params_sha256()
    wrong = np.zeros(shape, np.uint8)
    for use in (lambda: made.predict(wrong), lambda: made.evaluate((wrong, Y[:3])), lambda: made.fit((wrong, Y[:3]))):
        with pytest.raises(
            ShapeError, match=re.escape("(6, 6, 1) (height, width, channels), as this net was made for")
        ):
            use()
    assert made.params_sha256() == before
    assert made.predict(X).shape == (12, CLASSES)


def test_labels_changed_in_place_are_checked_again(trainer):
    y = Y.astype(np.int64)
    data = from_arrays(X, y)
    made = trainer(dense(), kernels="numpy")
    made.fit(data, callbacks=())
    for wrong in (-1, CLASSES, 10**9):
        y[5] = wrong
        for use in (made.fit, made.evaluate):
            with pytest.raises(DataError, match=f"{wrong} at index 5"):
                use(data)


def test_a_mistake_leaves_no_mark(trainer):
    """What was refused decides nothing about the net: the next, correct call does."""
    net = nn.Sequential(nn.AvgPool2d(2), nn.Conv2d(1, CLASSES, 1), nn.AvgPool2d(3), nn.Flatten())  # of 6 × 6 or 7 × 7
    made = trainer(net, kernels="numpy")
    with pytest.raises(DataError):
        made.fit((np.zeros((2, 7, 7, 1), np.uint8), np.array([0, 9])))
    seven = np.zeros((2, 7, 7, 1), np.uint8), np.array([0, 1])
    with pytest.raises(ShapeError):
        made.fit(seven, validation=(X, Y))
    made.optimizer = optim.SGD(0.1, groups=[optim.Group("conv.*")])
    with pytest.raises(ConfigError):
        made.fit(seven)
    made.optimizer = optim.SGD(0.1)
    made.fit((X, Y), callbacks=())
    assert made.predict(X).shape == (12, CLASSES)


@pytest.mark.parametrize("workers", [1, 2])
def test_divergence_names_the_step_and_the_net_is_put_back(trainer, workers):
    data = images(64, np.float32)
    made = trainer(conv_net(), optim.SGD(1e25), workers=workers)
    made.evaluate(data)
    start = made.params_sha256()
    message = r"the loss at step \d+ \(epoch 1\): expected a finite number.*learning rate"
    with pytest.raises(TrainingError, match=message) as caught:
        made.fit(data, epochs=2, batch_size=8, callbacks=())
    step = int(re.search(r"step (\d+)", str(caught.value))[1])
    assert 1 <= step < 8 and made.epochs_done == 0
    assert made.params_sha256() == start
    scores = made.evaluate(data)
    assert math.isfinite(scores["loss"])
    # Again the same, and no memory of it: images of nothing do not diverge.
    with pytest.raises(TrainingError, match=f"at step {step} "):
        made.fit(data, batch_size=8, callbacks=())
    made.fit((np.zeros((1, 6, 6, 1), np.float32), np.array([0])), callbacks=())
    assert made.epochs_done == 1


@pytest.mark.parametrize("batch_size", [64, 32])
def test_parameters_that_no_loss_has_seen_must_be_finite(trainer, batch_size):
    # Rows of the weights whose pixels are dark but in the last batch stay finite until its step.
    x, y = np.zeros((64, 6, 6, 1), np.float32), np.arange(64) % CLASSES
    x[corenet.train.run.permutation(0, 0, 64)[-batch_size:], 0, 0] = 1e12
    made = trainer(nn.Sequential(nn.Flatten(), nn.Linear(36, CLASSES, bias=False)), optim.SGD(1e30), kernels="numpy")
    made.evaluate((x, y))
    start = made.params_sha256()
    where = f"a parameter after step {64 // batch_size - 1} (epoch 1): expected a finite number"
    with pytest.raises(TrainingError, match=re.escape(where)):
        made.fit((x, y), batch_size=batch_size, callbacks=())
    assert made.params_sha256() == start and made.epochs_done == 0


def test_one_image_alone_and_channels_first_are_recognised(trainer):
    x, y = images(12, shape=(6, 6, 3))
    made = trainer(nn.Sequential(nn.Flatten(), nn.Linear(108, CLASSES)), kernels="numpy")
    made.fit((x, y), callbacks=())
    with pytest.raises(ShapeError, match=r"\(6, 6, 3\) .*got \(6, 3, 1\)\. One image alone is x\[None\]"):
        made.predict(x[0])
    with pytest.raises(
        ShapeError, match=r"got \(3, 6, 6\), which would fit as .*channels-last: x\.transpose\(0, 2, 3, 1\)"
    ):
        made.predict(x.transpose(0, 3, 1, 2))
    assert made.predict(x[:1]).shape == (1, CLASSES)


def test_the_step_that_is_named_is_the_one(trainer, capfd):
    x, y = images(64, np.float32)
    x[10] = 3e38  # finite, but no sum of such, and all weights will be about 1
    made = trainer(dense(), optim.SGD(0.01), workers=2, kernels="numpy", seed=3)
    made.fit((x[11:], y[11:]), batch_size=53, callbacks=())  # one step
    made._session._state[:] = 1
    (place,) = np.flatnonzero(corenet.train.run.permutation(3, 1, 64) == 10)
    with pytest.raises(TrainingError, match=rf"at step {1 + place // 8} \(epoch 2\)"):
        made.fit((x, y), epochs=3, batch_size=8, callbacks=())
    assert capfd.readouterr().err == ""  # NumPy's warnings in the workers would say less, and more often
    made.fit((x[11:], y[11:]), batch_size=8, callbacks=())
    assert made.history["epoch"] == [2]


def test_what_is_printed(trainer, capsys):
    made = trainer(dense(), workers=2, kernels="numpy")
    made.fit(images(), epochs=2, validation=images(9))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert lines[0].startswith("arrays: 101 images; 2 workers x 1 thread")
    assert lines[0].endswith("NumPy definitions, as asked")
    assert re.fullmatch(r"epoch 1/2  loss \d\.\d{4}  accuracy \S+%  validation loss .*images/s", lines[1])


def test_null_kernels_compute_nothing(trainer):
    """All else is done: what a run with them takes is the time outside of kernels."""
    made = trainer(nn.Sequential(nn.Flatten(), nn.Linear(36, CLASSES)), workers=2, kernels="null")
    x, y = images(40)
    made.fit((x, y), batch_size=8)
    before = made.params_sha256()
    made.fit((x, y), batch_size=8, epochs=2)
    assert made.params_sha256() == before and len(made.history.epochs) == 2
    assert made.predict(x).shape == (40, CLASSES)
