"""Model files: what is loaded predicts the same bits; what is no sound model is one clear error, and runs nothing."""

import json
import os
import struct
from pathlib import Path

import numpy as np
import pytest
from conftest import CLASSES, images
from safetensors import safe_open
from safetensors.numpy import save

import corenet
from corenet import nn, optim
from corenet.datasets import from_arrays
from corenet.errors import ConfigError, CorenetError, FileError, ShapeError
from corenet.train import tensor_file

NAMES = ("left ↖", "right ↗", 'a "quoted" one', "")


def net() -> nn.Sequential:
    body = nn.Sequential(nn.Conv2d(2, 2, 3, padding=1, bias=False), nn.BatchNorm2d(2, eps=1e-3), nn.ReLU())
    return nn.Sequential(
        nn.Conv2d(1, 2, (3, 1), padding=(1, 0)), nn.Residual(body), nn.AvgPool2d(2),
        nn.Dropout(0.1), nn.Flatten(), nn.Linear(18, CLASSES),
    )  # fmt: skip


def data():
    x, y = images()
    return from_arrays(x, y, mean=0.31, std=0.27, classes=NAMES, name="corners")


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A model file, and what the net in it predicts."""
    path = tmp_path_factory.mktemp("model") / "model.safetensors"
    optimizer = optim.SGD(optim.Cosine(0.1, 5, final=0.01), momentum=0.9, nesterov=True, weight_decay=1e-4)
    with corenet.Trainer(net(), optimizer, workers=2, share_cores=True, kernels="numpy", chunk=7, seed=5) as trainer:
        trainer.fit(data(), epochs=2, batch_size=16, callbacks=())
        trainer.save(path)
        return path, trainer.predict(data()), trainer.params_sha256(), trainer.evaluate(data())


def load(path, **settings) -> corenet.Trainer:
    return corenet.load(path, **{"workers": 1, "kernels": "numpy", **settings})


def test_what_is_loaded_predicts_the_same_bits(saved):
    path, predictions, sha256, scores = saved
    with load(path, workers=2, share_cores=True) as loaded:
        assert loaded.params_sha256() == sha256
        assert (loaded.predict(data()) == predictions).all()
        assert (loaded.predict(data().x) == predictions).all()  # the scaling is the model's, not that of bare arrays
        assert loaded.evaluate(data()) == scores


def test_it_says_what_it_is(saved):
    loaded = load(saved[0])
    assert repr(loaded.net).replace(", algorithm='direct'", "") == repr(net())
    assert loaded.classes == NAMES
    assert (loaded.seed, loaded.chunk, loaded.loss.name) == (5, 7, "cross_entropy")
    described = optim.describe(loaded.optimizer)
    assert described["type"] == "SGD" and described["nesterov"] is True and described["lr"]["final"] == 0.01
    assert load(saved[0], seed=9, chunk="auto").seed == 9  # settings given win


def test_it_can_be_trained_on_and_saved_again(saved, tmp_path):
    with load(saved[0]) as loaded:
        history = loaded.fit(data(), epochs=2, batch_size=16, callbacks=())
        assert history["loss"][0] < 0.3 and history["epoch"] == [1, 2]  # it begins where the file ended: ln 4 is 1.39
        loaded.save(tmp_path / "again.safetensors")
        assert load(tmp_path / "again.safetensors").params_sha256() == loaded.params_sha256() != saved[2]


def test_a_model_file_is_no_checkpoint(tmp_path):
    """What `load` says begins anew: steps, the optimizer's numbers, epochs, schedules but for a Plateau's state."""
    for schedule, rates in ((optim.Step(0.1, 1), [0.1, 0.01]), (optim.Plateau(0.1, patience=0, threshold=1), [0.01])):
        with corenet.Trainer(net(), optim.SGD(schedule, momentum=0.9), workers=1, kernels="numpy") as trainer:
            trainer.fit(data(), epochs=2, callbacks=())
            trainer.save(tmp_path / "m.safetensors")
            assert trainer._session.snapshot().slots.any()
        with load(tmp_path / "m.safetensors") as loaded:
            loaded.predict(data())
            begin = loaded._session.snapshot()
            assert begin.step == 0 and not begin.slots.any() and loaded.epochs_done == 0
            history = loaded.fit(data(), epochs=len(rates), callbacks=())
            assert history["learning_rate"] == pytest.approx(rates) and history["epoch"][0] == 1


def test_it_goes_on_with_the_algorithms_that_it_was_trained_with(tmp_path, monkeypatch):
    """What "auto" took is in the file, so that a version which chooses otherwise computes the same bits."""
    layers = [
        nn.Conv2d(1, 16, 5, padding=2), nn.Conv2d(16, 16, 3, padding=1), nn.Conv2d(16, 16, 5, padding=2),
        nn.Conv2d(16, 16, 3, padding=1, algorithm="winograd2"), nn.Residual(nn.Conv2d(16, 16, 3, padding=1)),
    ]  # fmt: skip
    whole = nn.Sequential(*layers, nn.Flatten(), nn.Linear(576, CLASSES))
    with corenet.Trainer(whole, workers=1, kernels="numpy") as trainer:
        trainer.fit(data(), epochs=1, callbacks=())
        trainer.save(tmp_path / "m.safetensors")
        predictions = trainer.predict(data())
    monkeypatch.setattr("corenet.nn.conv.fastest", lambda *shapes: "direct")
    with load(tmp_path / "m.safetensors") as loaded:
        first, second, third, fourth, fifth = loaded.net.layers[:5]
        taken = [layer.algorithm for layer in (first, second, third, fourth, fifth.body)]
        assert taken == ["direct", "winograd4", "winograd4", "winograd2", "winograd4"]
        assert (loaded.predict(data()) == predictions).all()
    assert whole.layers[1].algorithm == "auto"


def test_saving_what_was_loaded_gives_the_same_file(saved, tmp_path):
    again = tmp_path / "deep" / "er" / "again.safetensors"
    load(saved[0]).save(again)
    assert header(again) == header(saved[0])
    with safe_open(again, "np") as one, safe_open(saved[0], "np") as other:
        assert one.keys() == other.keys()
        assert all((one.get_tensor(name) == other.get_tensor(name)).all() for name in one.keys())  # noqa: SIM118
    assert os.listdir(again.parent) == ["again.safetensors"]  # and nothing temporary beside it
    assert oct(again.stat().st_mode & 0o777) == oct(0o666 & ~umask())


def umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_other_programs_can_read_it(saved):
    with safe_open(saved[0], "np") as file:
        assert file.get_tensor("5.weight").shape == (18, CLASSES)
        assert {"0.weight", "0.bias", "1.body.1.running_var"} < set(file.keys())
        assert file.metadata()["format"] == "corenet model 1"


def test_a_folder_in_the_way_is_one_clear_error(saved, tmp_path):
    (tmp_path / "taken").mkdir()
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "taken", tmp_path / "file" / "model"):
        with pytest.raises(FileError, match=f"cannot write {path}.*Nothing was changed"):
            load(saved[0]).save(path)
    assert sorted(os.listdir(tmp_path)) == ["file", "taken"]


# Files that are no models.


def header(path: Path) -> dict:
    content = path.read_bytes()
    return json.loads(content[8 : 8 + struct.unpack("<Q", content[:8])[0]])


def changed(path: Path, tensors: dict | None = None, text: str | None = None, **values) -> bytes:
    """The file with other tensors, or other values in its description."""
    with safe_open(path, "np") as file:
        kept = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        metadata = file.metadata()
    description = {**json.loads(metadata["corenet"]), **values}
    kept = {name: array for name, array in {**kept, **(tensors or {})}.items() if array is not None}
    metadata["corenet"] = json.dumps(description) if text is None else text
    metadata["sha256"] = tensor_file._checksum(metadata["corenet"], kept)
    return save(kept, metadata=metadata)


def but(*args, **values):
    return lambda path: changed(path, *args, **values)


def framed(text: bytes, length: int | None = None) -> bytes:
    return struct.pack("<Q", len(text) if length is None else length) + text


def nested(depth: int):
    """With a net of that many layers inside each other, written without json, which cannot."""

    def damage(path: Path) -> bytes:
        description = {**json.loads(header(path)["__metadata__"]["corenet"]), "net": "here"}
        net = '{"type": "Residual", "body": ' * depth + '{"type": "ReLU"}' + "}" * depth
        return changed(path, text=json.dumps(description).replace('"here"', net))

    return damage


def with_huge(tensors: dict) -> dict:
    return {**tensors, "5.weight": {"dtype": "F32", "shape": [1 << 30], "data_offsets": [0, 4 << 30]}}


def layer(kind: str, **arguments):
    return but(net={"type": "Sequential", "layers": [{"type": kind, **arguments}]})


NOT_MODELS = {
    "empty": (b"", "an empty file"),
    "a few bytes": (b"\x07", r"a file that begins with b'\\x07'"),
    "HTML": (b"<!DOCTYPE html><html><body>404 Not Found</body></html>", "a file that begins with b'<!DOCTYPE html>"),
    "PNG": (b"\x89PNG\r\n\x1a\n" + bytes(1000), r"a file that begins with b'\\x89PNG"),
    "a header of 4 GB": (framed(b"{}", 4 << 30), "cut short"),
    "a header of 2^64 - 1": (framed(b"{}", 2**64 - 1), "cut short"),
    "a header of nothing": (framed(b""), "a file that begins with"),
    "a header that is no JSON": (framed(b"{not json}"), r"a damaged file \(JSONDecodeError"),
    "a header that is a list": (framed(b"[1, 2]"), "a file that begins with"),
    "a header in Latin-1": (framed(b'{"\xe9": 1}'), r"a damaged file \(UnicodeDecodeError"),
    "a header that nests deeply": (framed(b'{"a":' * 100_000), r"a damaged file \(RecursionError"),
    "another safetensors file": (save({"a": np.zeros(3, np.float32)}), "a safetensors file of something else"),
    "a later version": (save({}, metadata={"format": "corenet model 2"}), "'corenet model 2', of a later corenet"),
    "an earlier version": (save({}, metadata={"format": "corenet model 0"}), "format 'corenet model 0'"),
    "a checkpoint": (save({}, metadata={"format": "corenet checkpoint 1"}), "format 'corenet checkpoint 1'"),
    "no description": (save({}, metadata={"format": "corenet model 1"}), "a damaged file"),
}  # fmt: skip

DAMAGED = {
    "cut at the end": (lambda path: path.read_bytes()[:-1], "not a corenet model"),
    "cut in the middle": (lambda path: path.read_bytes()[: path.stat().st_size // 2], "not a corenet model"),
    "a bit in a parameter": (lambda path: path.read_bytes()[:-4] + b"abcd", "its checksum is another"),
    "no checksum": (lambda path: path.read_bytes().replace(b'"sha256"', b'"sha255"'), "its checksum is another"),
    "one byte more": (lambda path: path.read_bytes() + b"\0", "not a corenet model"),
    "a tensor of 4 GB": (lambda path: framed(json.dumps(with_huge(header(path))).encode()), "not a corenet model"),
    "a tensor is missing": (but({"5.weight": None}), r"'5.weight'.*expected \(18, 4\), got none"),
    "a tensor too many": (but({"6.weight": np.zeros(1, np.float32)}), "'6.weight'.*none of that name"),
    "a tensor turned": (but({"5.weight": np.zeros((4, 18), np.float32)}), r"\(18, 4\).*got \(4, 18\)"),
    "doubles": (but({"5.bias": np.zeros(4)}), "'5.bias'.*finite float32, got float64"),
    "integers": (but({"5.bias": np.zeros(4, np.int32)}), "'5.bias'.*got int32"),
    "NaN": (but({"5.bias": np.full(4, np.nan, np.float32)}), "'5.bias'.*some infinite or NaN"),
    "infinity": (but({"5.bias": np.full(4, np.inf, np.float32)}), "'5.bias'.*some infinite or NaN"),
    "a net of 10^18 parameters": (layer("Linear", in_features=10**9, out_features=10**9), "damaged"),
    "unknown layer": (layer("Attention"), "a layer of Conv2d.*got.*Attention"),
    "a layer that is code": (layer("__import__('os').abort()"), "a layer of Conv2d"),
    "a layer that is a number": (but(net=7), "a layer of Conv2d.*got 7"),
    "unknown argument": (layer("ReLU", slope=0.1), "ReLU.*no arguments"),
    "missing argument": (layer("Linear", in_features=3), "Linear.*out_features"),
    "argument of another kind": (layer("BatchNorm2d", num_features=1, eps="x"), "'x'"),
    "beyond all floats": (layer("Conv2d", in_channels=1, out_channels=1, kernel_size=10**400), "damaged"),
    "layers nested deeply": (nested(600), "damaged: got a net nested too deeply"),
    "layers nested very deeply": (nested(50_000), "recursion"),
    "unknown optimizer": (but(optimizer={"type": "Lion"}), "SGD, Adam.*Lion"),
    "unknown loss": (but(loss="hinge"), "cross_entropy.*hinge"),
    "a loss that is a list": (but(loss=["cross_entropy"]), "damaged"),
    "a description that is a list": (but(text="[]"), "not a corenet model"),
    "a field missing": (but(text="{}"), "not a corenet model"),
    "a field too many": (but(code="import os"), "code"),
    "an input of no pixels": (but(input_shape=[0, 6, 1]), r"input_shape = \[0, 6, 1\]"),
    "an input of fractions": (but(input_shape=[6, 6.5, 1]), "input_shape"),
    "an input that is text": (but(input_shape="661"), "input_shape = '661'"),
    "an input of one number": (but(input_shape=6), "not a corenet model"),
    "a huge input": (but(input_shape=[10**12, 10**12, 1]), r"layer 5 \(Linear\)"),
    "another input": (but(input_shape=[8, 8, 1]), r"layer 5 \(Linear\)"),
    "a deviation of 0": (but(std=[0.0]), r"std = \[0.0\]"),
    "a mean that is NaN": (but(mean=[float("nan")]), r"mean = \[nan\]"),
    "means of three channels": (but(mean=[0.1, 0.2, 0.3]), r"mean = \[0.1, 0.2, 0.3\]"),
    "a mean that is text": (but(mean=["0.1"]), "not a corenet model"),
    "classes that are numbers": (but(classes=[0, 1, 2, 3]), r"classes = \[0, 1, 2, 3\]"),
    "a chunk of 0": (but(chunk=0), "chunk.*got 0"),
    "a seed that is text": (but(seed="7"), "seed.*got '7'"),
}  # fmt: skip


@pytest.mark.parametrize("content, message", NOT_MODELS.values(), ids=NOT_MODELS)
def test_what_is_no_model_is_named(tmp_path, content, message):
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    with pytest.raises(
        FileError, match=f"{path} is not a corenet model: expected a safetensors file.*{message}"
    ) as caught:
        corenet.load(path)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("damage, message", DAMAGED.values(), ids=DAMAGED)
def test_damage_is_named(saved, tmp_path, damage, message):
    path = tmp_path / "model.safetensors"
    path.write_bytes(damage(saved[0]))
    with pytest.raises(FileError, match=f"(?s){path} is.*{message}") as caught:
        corenet.load(path)
    assert len(str(caught.value)) < 600


def test_every_byte_of_the_description_may_be_wrong(saved, tmp_path):
    """A flipped bit anywhere in the header is an error of corenet, or leaves a model that can be used."""
    content = saved[0].read_bytes()
    path = tmp_path / "model.safetensors"
    generator = np.random.default_rng(0)
    (length,) = struct.unpack("<Q", content[:8])
    outcomes = []
    for place in generator.integers(0, 8 + length, 300):
        broken = bytearray(content)
        broken[place] ^= 1 << generator.integers(0, 7)
        path.write_bytes(bytes(broken))
        try:
            corenet.load(path, workers=1).parameters()
            outcomes.append("loads")
        except CorenetError:
            outcomes.append("error")
    assert outcomes.count("error") > 100


def test_what_is_not_there_or_no_file(tmp_path):
    with pytest.raises(FileError, match=r"cannot read model .*nothing: got no such file"):
        corenet.load(tmp_path / "nothing")
    with pytest.raises(FileError, match="got a folder"):
        corenet.load(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FileError, match="cannot read model"):
        corenet.load(tmp_path / "pipe")


def test_a_huge_file_of_another_kind_is_not_read(tmp_path):
    path = tmp_path / "video"
    with path.open("wb") as file:
        file.truncate(1 << 40)  # a terabyte of nothing
    with pytest.raises(FileError, match="not a corenet model"):
        corenet.load(path)


def test_mistakes_of_the_caller_are_not_blamed_on_the_file(saved):
    with pytest.raises(ConfigError, match=r"kernels.*'cuda'"):
        corenet.load(saved[0], kernels="cuda")
    with pytest.raises(ShapeError, match=r"\(6, 6, 1\).*got \(7, 7, 1\)"):
        load(saved[0]).predict(np.zeros((1, 7, 7), np.uint8))
