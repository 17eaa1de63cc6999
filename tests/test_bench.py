"""What `corenet bench` measures with: that it counts the right work, checks before it times, and compares."""

import json
import math

import pytest

pytest.importorskip("numba")

from corenet import models
from corenet.bench import document, kernels, layers, peers, rounds, steps
from corenet.bench.peaks import Peaks, _array_bytes, at_work, measure_peaks
from corenet.bench.rounds import Spread
from corenet.errors import ConfigError, FileError, MissingExtraError
from corenet.kernels import backend, native
from corenet.nn import Conv2d, Linear
from corenet.parallel.topology import usable_cpus

BACKEND = backend.select("numba")
PEAKS = Peaks({1: Spread.of([50.0, 100.0])}, {1: Spread.of([10.0])})
TINY = {
    "padded": (Conv2d(3, 5, 3, padding=1), (6, 7, 3)),
    "strided": (Conv2d(2, 4, 3, 2, padding=1, bias=False), (9, 9, 2)),
    "Winograd": (Conv2d(16, 16, 3, padding=1), (8, 8, 16)),
    "depthwise": (Conv2d(8, 8, 3, padding=1, groups=8), (6, 6, 8)),
    "dense": (Linear(20, 7), (20,)),
}
CASES = [layers.Case(name, layer, shape) for name, (layer, shape) in TINY.items()]


def linked(case: layers.Case, batch: int) -> kernels.PlannedLayer:
    planned = kernels.PlannedLayer(case, batch)
    for one in planned.passes.values():
        one.link(BACKEND)
    return planned


# Peaks.


def test_peaks_are_positive_on_one_core_and_on_all():
    cores = usable_cpus()
    found = measure_peaks(BACKEND, cores, rounds=2, array=1 << 16)
    for spreads in (found.gflops, found.bandwidth):
        assert list(spreads) == sorted({1, len(cores)})
        assert all(len(spread.values) == 2 and 0 < spread.low <= spread.high for spread in spreads.values())
    assert found.compute(1) == found.gflops[1].high and found.memory(1) == found.bandwidth[1].high
    assert json.loads(json.dumps(found.to_json()))["gflops"]["1"]["high"] == found.compute(1)


def test_what_fails_in_a_thread_is_raised():
    class Broken:
        def function(self, operation, args):
            raise LookupError("no such kernel")

    with pytest.raises(LookupError, match="no such kernel"):
        measure_peaks(Broken(), usable_cpus(), rounds=1, array=1 << 16)


def test_arrays_are_larger_than_the_caches(tmp_path):
    folder = tmp_path / "sys/devices/system/cpu/cpu0/cache"
    for number, size in enumerate(("32K", "1024K", "48M")):
        (folder / f"index{number}").mkdir(parents=True)
        (folder / f"index{number}" / "size").write_text(f"{size}\n")
    assert _array_bytes(tmp_path) == 2 * 48 << 20
    (folder / "index2" / "size").write_text("900M")
    assert _array_bytes(tmp_path) == 256 << 20
    assert _array_bytes(tmp_path / "nowhere") == 32 << 20


def test_a_thread_is_left_as_it_was():
    before, flushed = usable_cpus(), native.flush_to_zero()
    with at_work(before[-1]):
        assert usable_cpus() == before[-1:]
    assert (usable_cpus(), native.flush_to_zero()) == (before, flushed)


# Rounds.


def test_contestants_take_turns():
    turns = []

    def contestant(name, values):
        return lambda: turns.append(name) or values.pop(0)

    found = rounds.interleave({"a": contestant("a", [4.0, 1.0, 9.0]), "b": contestant("b", [2.0, 1.0, 3.0])}, 3)
    assert turns == list("ababab")
    assert found["a"] == Spread([4.0, 1.0, 9.0], 4.0, 1.0, 9.0)
    assert rounds.ratios(found["a"], found["b"]) == Spread([2.0, 1.0, 3.0], 2.0, 1.0, 3.0)


def test_repeated_counts_calls_per_second():
    calls = []
    measure = rounds.repeated(lambda: calls.append(1), 0.001)
    before = len(calls)
    rate = measure()
    assert (len(calls) - before) / rate < 1 and rate > 0


# Layers.


def test_the_suite_has_every_layer_of_its_nets_once():
    cases = {case.name: case for case in layers.all_cases()}
    assert len(cases) == 36
    assert cases["conv 28×28 1→32 3×3"].nets == ["mnist_example", "keras_mnist"]
    assert cases["dense 128→10"].nets == ["mnist_example", "vgg_small"]
    assert cases["conv 32×32 16→32 3×3 s2 p1"].nets == ["resnet20"]
    assert {"conv 14×14 256→256 3×3 p1", "depthwise 28×28 32 3×3 p1", "dense 1024→1024"} <= set(cases)
    assert set(layers.QUICK) <= set(cases)
    for net in layers.NETS:  # the layers are those of the net's summary
        names = {row.output_shape[-1] for row in models.get(net).summary(models.INPUT_SHAPES[net]).rows if row.flops}
        own = [case.layer for case in cases.values() if net in case.nets]
        assert {layer.arguments().get("out_channels", layer.arguments().get("out_features")) for layer in own} == names


def test_names_tell_layers_apart():
    assert layers.name_of(Conv2d(4, 6, (3, 5), groups=2, dilation=2), (9, 9, 4)) == "conv 9×9 4→6 3×5 d2 g2"
    assert layers.name_of(Conv2d(4, 6, 3, padding=(0, 2)), (9, 8, 4)) == "conv 9×8 4→6 3×3 p0×2"
    assert layers.name_of(Conv2d(4, 6, 3, padding=(2, 0)), (9, 8, 4)) == "conv 9×8 4→6 3×3 p2×0"
    assert layers.name_of(Conv2d(4, 6, 3, padding="same"), (9, 8, 4)) == "conv 9×8 4→6 3×3 psame"


def test_layers_are_chosen_by_net_or_name():
    cases = layers.all_cases()
    assert [case.name for case in layers.choose(cases, ["depthwise"])] == ["depthwise 28×28 32 3×3 p1"]
    assert len(layers.choose(cases, ["keras_mnist"])) == 3
    assert layers.choose(cases, []) == cases
    with pytest.raises(ConfigError, match=r"--only: expected one of lenet5, .*, got 'keras'"):
        layers.choose(cases, ["depthwise", "keras"])


# Kernels.


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_passes_compute_what_numpy_defines(case):
    planned = linked(case, 40)
    errors = kernels.verify(case, 40, planned)
    assert set(errors) == set(kernels.PASSES) and max(errors.values()) < 1e-5
    assert {one.algorithm for one in planned.passes.values()} == {
        {"dense": "dense", "depthwise": "depthwise", "Winograd": "Winograd 4×4"}.get(case.name, "direct")
    }


@pytest.mark.parametrize("name", kernels.PASSES)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_wrong_kernel_is_noticed(case, name):
    planned = linked(case, 16)
    one = planned.passes[name]
    right = one.run

    def wrong() -> None:
        right()
        planned.result(name)[-1].reshape(-1)[-1] += 0.1

    one.run = wrong
    with pytest.raises(kernels.WrongResult, match=f"{case.name}, {name}, .*: expected an error of at most 0.0001"):
        kernels.verify(case, 16, planned)


@pytest.mark.parametrize("name", kernels.PASSES)
def test_what_is_not_written_is_noticed_before_anything_is_timed(name, monkeypatch):
    def forgetful(*args, **how):
        made = right(*args, **how)
        if not how:  # not the definition
            made.passes[name].run = lambda: None
        return made

    right = kernels.PlannedLayer
    monkeypatch.setattr(kernels, "PlannedLayer", forgetful)
    monkeypatch.setattr(kernels, "interleave", None)
    with pytest.raises(kernels.WrongResult, match=f"{name}, direct: .* got nan"):
        next(kernels.measure(CASES[0], kernels.How(16, 1, 0), BACKEND, PEAKS))


def test_lines_say_what_was_done():
    case = CASES[0]
    lines = list(kernels.measure(case, kernels.How(16, 3, 0.0005), BACKEND, PEAKS))
    assert [line["name"] for line in lines] == ["padded, forward", "padded, data", "padded, weights"]
    for line in lines:
        assert line["flops"] == line["samples"] * 2 * 6 * 7 * 5 * 27 and line["samples"] == line["chunk"] == 4
        assert len(line["values"]) == 3 and line["low"] <= line["median"] <= line["high"]
        assert line["percent_of_peak"] == pytest.approx(line["median"])  # the peak is 100
        assert line["roofline"] == pytest.approx(min(100, line["flops"] / line["bytes"] * 10))
    image, bordered, w, b, y = (4 * n for n in (4 * 6 * 7 * 3, 4 * 8 * 9 * 3, 27 * 5, 5, 4 * 6 * 7 * 5))
    assert lines[0]["bytes"] == image + bordered + w + b + y


def test_a_dense_weight_gradient_is_of_the_whole_batch():
    lines = list(kernels.measure(CASES[-1], kernels.How(16, 1, 0), BACKEND, PEAKS))
    assert [line["samples"] for line in lines] == [4, 4, 16]
    assert lines[2]["flops"] == 16 * 2 * 20 * 7


class FakePeer:
    """Another library, twice as fast in each answer as in the one before."""

    def __init__(self):
        self.questions, self.rate, self.closed = [], 1.0, False

    def ask(self, **question):
        self.questions.append(question)
        self.rate *= 2
        return {"rate": self.rate, "ways": dict.fromkeys(("train", "predict", *kernels.PASSES), "somehow")}

    def close(self):
        self.closed = True


def test_a_peer_is_measured_in_turn():
    peer = FakePeer()
    lines = list(kernels.measure(CASES[-1], kernels.How(16, 2, 0), BACKEND, PEAKS, peer))
    assert [question["do"] for question in peer.questions] == ["layer", *["pass"] * 6]
    assert peer.questions[0]["layer"] == {
        "kind": "dense", "input_shape": [20], "bias": True, "in": 20, "out": 7,
    }  # fmt: skip
    json.dumps(peer.questions)
    theirs = lines[0]["peer"]
    assert theirs["way"] == "somehow" and theirs["values"] == [4 * 280e-9, 8 * 280e-9]
    assert theirs["ratio"]["values"] == [a / b for a, b in zip(lines[0]["values"], theirs["values"], strict=True)]


def test_a_convolution_is_described_for_peers():
    assert CASES[1].description() == {
        "kind": "conv", "input_shape": [9, 9, 2], "bias": False, "in": 2, "out": 4, "groups": 1,
        "kernel_size": [3, 3], "stride": [2, 2], "padding": [1, 1], "dilation": [1, 1],
    }  # fmt: skip


# Steps.


def test_steps_are_measured_on_one_core(monkeypatch):
    monkeypatch.setattr(steps, "PAUSE", 0)
    monkeypatch.setattr(steps, "MOST_IMAGES", 64)
    started = []

    class Starter:
        VERSION = "1"

        def start(self, cores):
            started.append((cores, FakePeer()))
            return started[-1][1]

    how = steps.How(rounds=2, seconds=0.001)
    lines = list(steps.measure("lenet5", 8, how, usable_cpus()[:1], PEAKS, Starter()))
    assert [line["name"] for line in lines] == [f"lenet5, batch 8, 1 worker, {kind}" for kind in steps.KINDS]
    for line in lines:
        assert line["images"] == 64 and len(line["values"]) == 2 == len(line["peer"]["ratio"]["values"])
        assert line["gflops"] == pytest.approx(line["median"] * line["flops"] * 1e-9)
        assert line["percent_of_peak"] == pytest.approx(line["gflops"])  # the peak is 100
    assert lines[1]["flops"] == models.lenet5().summary((28, 28, 1)).flops
    assert lines[0]["flops"] == models.lenet5().summary((28, 28, 1)).training_flops
    (cores, peer), = started  # fmt: skip
    assert cores == usable_cpus()[:1] and peer.closed
    assert [question["do"] for question in peer.questions] == ["net", "train", "predict", "train", "predict"]


def test_nets_are_chosen_by_name():
    assert steps.choose([]) == list(layers.NETS)
    assert steps.choose(["resnet20", "lenet5"]) == ["lenet5", "resnet20"]
    with pytest.raises(ConfigError, match=r"--only: expected one of lenet5, .*, got 'unet_small'"):
        steps.choose(["unet_small"])


# Peers.


def checkout(folder, version="2"):
    (folder / "bench").mkdir()
    (folder / "bench" / "torch_peer.py").write_text("")
    (folder / "bench" / "peers.py").write_text(f"VERSION = {version!r}\n")
    return folder


def test_peers_are_found_in_a_checkout(tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)
    (tmp_path / "other").mkdir()
    assert peers.find([tmp_path / "other", checkout(tmp_path)]).VERSION == "2"


def test_peers_need_a_checkout_and_pytorch(tmp_path, monkeypatch):
    with pytest.raises(
        FileError, match=r"--peers needs a checkout of corenet, with bench/torch_peer.py: got none here"
    ):
        peers.find([tmp_path])
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"--peers needs PyTorch, which is not installed\. pip install torch"):
        peers.find([checkout(tmp_path)])


# Documents.


def result(suite="kernels", cpu="a CPU", **medians):
    rows = [
        {"name": name, "unit": "GFLOP/s", **Spread.of([0.9 * m, m, 1.1 * m]).to_json()} for name, m in medians.items()
    ]
    made = document.make(suite, rows, settings={}, backend=BACKEND, peaks=PEAKS, versions={"torch": "2"})
    return {**made, "machine": {**made["machine"], "cpu": cpu}}


def test_a_document_is_read_as_it_was_written(tmp_path):
    made = result(a=1.0)
    document.write(tmp_path / "result.json", made)
    assert document.read(tmp_path / "result.json") == made
    assert made["versions"].keys() >= {"corenet", "numpy", "numba", "torch"} and made["machine"]["cores"]
    assert [path.name for path in tmp_path.iterdir()] == ["result.json"]


DAMAGED = {
    "nothing": "", "half": '{"format": "corenet ben', "other": "[1]", "foreign": '{"lines": []}',
    "deep": "[" * 100_000,
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGED)
def test_what_is_no_document_is_refused(tmp_path, name):
    (tmp_path / "file").write_text(DAMAGED[name])
    with pytest.raises(FileError, match=r"a result of corenet bench, got (no JSON, or a part of it|other JSON)"):
        document.read(tmp_path / "file")


@pytest.mark.parametrize(
    "change, message",
    [
        ({"version": 7}, "version 7"),
        ({"suite": None}, "no suite, machine or lines"),
        ({"machine": []}, "no suite, machine or lines"),
        ({"lines": [1]}, "line 0 has no name, unit or numbers"),
        ({"lines": [{"name": "a", "unit": "u", "median": 1, "low": 0, "high": 2}]}, "line 0 has no name"),
        ({"lines": [{"name": "a", "unit": "u", "median": True, "low": 1, "high": 2}]}, "line 0 has no name"),
        ({"lines": [{"name": "a", "unit": "u", "median": 1, "low": 1, "high": math.inf}]}, "line 0 has no name"),
    ],
)
def test_damaged_documents_are_refused(tmp_path, change, message):
    (tmp_path / "file").write_text(json.dumps({**result(a=1.0), **change}))
    with pytest.raises(FileError, match=message):
        document.read(tmp_path / "file")


def test_two_results_are_compared_line_by_line():
    found = document.compare(result(a=1.0, b=2.0, c=3.0), result(cpu="another", a=1.05, b=4.0, d=5.0))
    a, b = found["lines"]
    assert a == {"name": "a", "unit": "GFLOP/s", "old": 1.0, "new": 1.05, "ratio": 1.05, "clear": False}
    assert (b["ratio"], b["clear"]) == (2.0, True)
    assert found["only"] == {"old": ["c"], "new": ["d"]}
    assert found["machines"] == {"old": "a CPU", "new": "another"}


def test_what_cannot_be_compared_is_refused():
    with pytest.raises(ConfigError, match="expected one suite, got 'kernels' and 'step'"):
        document.compare(result(a=1.0), result(suite="step", a=1.0))
    with pytest.raises(ConfigError, match="expected lines of the same names, got none"):
        document.compare(result(a=1.0), result(b=1.0))
