"""Wrong input: one line that says what, exit code 2, no traceback, nothing left behind."""

import json
import signal

import numpy as np
import pytest
from cli_command import fail, without

from corenet import datasets, models, optim
from corenet.cli.ending import run
from corenet.cli.source import source_of
from corenet.datasets.idx import write_idx
from corenet.datasets.images import save_image
from corenet.errors import ConfigError
from corenet.train import Trainer


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Files of many kinds, and a model of the digits."""
    folder = tmp_path_factory.mktemp("inputs")
    train, _ = datasets.digits()
    trainer = Trainer(models.digits_cnn(), optim.Adam(1e-3), workers=1)
    trainer._adopt(train)
    (folder / "run").mkdir()
    trainer.save(folder / "run" / "model.safetensors")
    content = (folder / "run" / "model.safetensors").read_bytes()
    (folder / "cut.safetensors").write_bytes(content[: len(content) // 2])
    trainer._data_name = "somebody's"
    trainer.save(folder / "unknown.safetensors")

    (folder / "text.png").write_text("no image")
    save_image(folder / "good.png", train.x[0])
    save_image(folder / "large.png", np.zeros((28, 28), np.uint8))
    write_idx(folder / "some-idx3-ubyte", train.x[:3, ..., 0])
    for name in ("empty", "cut", "large", "colour"):
        (folder / name).mkdir()
    for stem in ("train", "t10k"):
        write_idx(folder / "cut" / f"{stem}-images-idx3-ubyte", train.x[:9, ..., 0])
        write_idx(folder / "cut" / f"{stem}-labels-idx1-ubyte", train.y[:9].astype(np.uint8))
        write_idx(folder / "large" / f"{stem}-images-idx3-ubyte", np.zeros((2, 12, 12), np.uint8))
        write_idx(folder / "large" / f"{stem}-labels-idx1-ubyte", np.zeros(2, np.uint8))
        write_idx(folder / "colour" / f"{stem}-images-idx4-ubyte", np.zeros((2, 19, 19, 200), np.uint8))
        write_idx(folder / "colour" / f"{stem}-labels-idx1-ubyte", np.zeros(2, np.uint8))
    with open(folder / "cut" / "train-images-idx3-ubyte", "r+b") as file:
        file.truncate(100)
    return folder


CASES = {
    # corenet train: settings
    "train digits --batch-size 0": "--batch-size: expected a number of at least 1, got 0",
    "train digits --epochs 0": "--epochs: expected a number of at least 1, got 0",
    "train digits --epochs many": "Invalid value for '--epochs'",
    "train digits --threads 0": "--threads: expected a number of at least 1, got 0",
    "train digits --workers 0": "--workers: expected auto or a number of at least 1, got '0'",
    "train digits --workers all": "--workers: expected auto or a number of at least 1, got 'all'",
    "train digits --workers 5000": "workers x threads: expected at most",
    "train digits --chunk -1": "--chunk: expected auto or a number of at least 1, got '-1'",
    "train digits --seed -1": "--seed: expected an integer of at least 0",
    "train digits --lr 0": "--lr: expected a number above 0, got 0.0",
    "train digits --lr nan": "--lr: expected a number above 0, got nan",
    "train digits --lr inf": "--lr: expected a number above 0, got inf",
    "train digits --optimizer lamb": "--optimizer: expected adam or sgd, got 'lamb'",
    "train digits --kernels cuda": "kernels: expected one of 'auto', 'numba', 'numpy', 'c', ",
    "train digits --precision half": "precision: expected one of 'float32', 'bf16', got 'half'",
    "train digits --precision bf16 --kernels numpy": "only Numba's know bfloat16, got 'bf16' with kernels='numpy'",
    "train digits --model digits_cn": "Did you mean 'digits_cnn'?",
    "train digits --model keras_mnist": "images of digits for the model keras_mnist: expected 28×28×1, got 8×8×1",
    # corenet train: data
    "train digit": "Did you mean 'digits'?",
    "train nowhere/at/all": "neither a name nor a folder",
    "train good.png": "got a file",
    "train empty": "no train-images in empty",
    "train cut": "cut/train-images-idx3-ubyte: expected 592 bytes",
    "train large": "no default model for images 12×12×1. Make a net in Python",
    "train digits --model unet_small": "--model: expected a net that gives one class for each image, got unet_small, "
    "which gives one for each pixel. Train it in Python",
    "train digits --model SimpleMNIST": "images of digits for the model simple_mnist: expected 28×28×1, got 8×8×1",
    "train colour": "no default model for images 19×19×200. Give --model, cnn2d",
    "train large --model lenet5": "expected 28×28×1, got 12×12×1",
    # corenet train: the run folder
    "train digits --out run": "run holds an earlier run: got model.safetensors",
    "train digits --out good.png": "cannot write the run folder good.png",
    "train digits --out good.png/below": "cannot write the run folder good.png/below",
    # corenet evaluate
    "evaluate nothing": "nothing: expected a run folder or a model file, got no such file or folder",
    "evaluate empty": "no model.safetensors in empty",
    "evaluate good.png": "good.png is not a corenet model",
    "evaluate cut.safetensors": "cut.safetensors is not a corenet model",
    "evaluate run fashion-mnist-subset": "expected 8×8×1, got 28×28×1",
    "evaluate run digit": "Did you mean 'digits'?",
    "evaluate run --workers 5000": "workers x threads: expected at most",
    "evaluate unknown.safetensors": "of this model is: got no record. Give the DATASET",
    # corenet predict
    "predict nothing good.png": "nothing: expected a run folder or a model file",
    "predict run nothing.png": "nothing.png: expected an image (PNG, JPEG, BMP, GIF, TIFF, WEBP, PPM), got no such",
    "predict run text.png": "text.png: expected an image",
    "predict run good.png large.png": "large.png: expected 8×8 pixels (width × height), as the net takes, got 28×28",
    "predict run good.png --top 0": "--top: expected a number of at least 1, got 0",
    "predict run some-idx3-ubyte --index 3": "--index: expected 0 to 2, the images of some-idx3-ubyte, got 3",
    "predict run large/train-images-idx3-ubyte": "expected 8×8×1 pixels, as the net takes, got 12×12×1",
    "predict run": "Missing argument 'IMAGE...'. See corenet predict --help",
    # the command line itself
    "trian": "No such command 'trian'",
    "info --loud": "No such option: --loud. See corenet info --help",
    "train digits digits": "unexpected extra argument",
}


@pytest.fixture
def here(folder, monkeypatch):
    """The folder as the current one, and SIGTERM as it was."""
    monkeypatch.chdir(folder)
    handler = signal.getsignal(signal.SIGTERM)
    yield folder
    signal.signal(signal.SIGTERM, handler)


@pytest.mark.parametrize("arguments", CASES)
def test_it_is_refused_in_one_line(arguments, here, capsys):
    before = sorted(here.rglob("*"))
    assert run(arguments.split()) == 2  # in this process: an exception that is no message fails the test
    out, err = capsys.readouterr()
    assert err.startswith("error: ") and err.count("\n") == 1
    assert CASES[arguments] in err
    assert out == ""
    assert sorted(here.rglob("*")) == before


def test_a_process_says_the_same(folder):
    assert CASES["train digit"] in fail("train", "digit", cwd=folder)


@pytest.mark.parametrize("arguments, module, extra", [
    ("predict run good.png", "PIL", "pip install 'corenet[images]'"),
    ("train digits --kernels numba", "numba", "kernels: expected an importable Numba"),
    ("train digits --kernels c", "numba", "kernels: expected an importable Numba"),
    ("evaluate run --kernels numba", "numba", "kernels: expected an importable Numba"),
])  # fmt: skip
def test_what_is_not_installed_is_named(arguments, module, extra, folder, tmp_path):
    assert extra in fail(*arguments.split(), cwd=folder, env=without(tmp_path, module))


def test_a_history_of_something_else_is_no_record(folder):
    model = folder / "unknown.safetensors"
    history = folder / "history.json"
    for text in ("no JSON", "[]", json.dumps({"run": {"dataset": "digits", "dataset_name": "another"}})):
        history.write_text(text)
        try:
            with pytest.raises(ConfigError, match='the data set "somebody\'s" of this model is: got no record'):
                source_of(model, "somebody's")
        finally:
            history.unlink()
