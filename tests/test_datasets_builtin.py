"""Shipped data sets, the search for the complete Fashion-MNIST, and names for the command line."""

import hashlib
import importlib.util
from pathlib import Path

import numpy as np
import pytest

from corenet.datasets import builtin, digits, fashion_mnist, load
from corenet.datasets.idx import read_idx, write_idx
from corenet.datasets.images import read_image
from corenet.errors import ConfigError, DataError, FileError

EXAMPLES = Path(__file__).parent.parent / "examples" / "images"


@pytest.fixture(autouse=True)
def small_world(monkeypatch, tmp_path):
    """Whatever this machine has installed: no complete set, and one that is complete has 6 + 4 images."""
    monkeypatch.setattr(builtin, "DEBIAN_FOLDER", tmp_path / "debian")
    monkeypatch.setattr(builtin, "FASHION_SIZES", (6, 4))


def write_complete(folder, sizes=(6, 4), shape=(28, 28)):
    folder.mkdir(parents=True)
    for stem, n in zip(("train", "t10k"), sizes, strict=True):
        write_idx(
            folder / f"{stem}-images-idx3-ubyte.gz", np.arange(n, dtype=np.uint8)[:, None, None] + np.zeros(shape, "u1")
        )
        write_idx(folder / f"{stem}-labels-idx1-ubyte.gz", np.arange(n, dtype=np.uint8))


def build_script():
    spec = importlib.util.spec_from_file_location("build", builtin.FILES / "build.py")
    build = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(build)
    return build


def test_shipped_files_are_those_the_script_states():
    for name, sha256 in build_script().OUTPUTS.items():
        assert hashlib.sha256(read_idx(builtin.FILES / name).tobytes()).hexdigest() == sha256, name
    assert {p.name for p in builtin.FILES.glob("*.gz")} == set(build_script().OUTPUTS)


def test_sources_and_licences_are_shipped():
    assert (
        "Copyright (c) 2017 Zalando SE, https://tech.zalando.com"
        in (builtin.FILES / "LICENSE-fashion-mnist").read_text()
    )
    assert "CC BY 4.0" in (builtin.FILES / "LICENSE-uci-digits").read_text()
    readme = (builtin.FILES / "README.md").read_text()
    assert "E. Alpaydin, C. Kaynak" in readme and all(name in readme for name in build_script().OUTPUTS)


def test_digits():
    train, test = digits()
    assert (len(train), len(test), train.sample_shape, train.n_classes) == (1437, 360, (8, 8, 1), 10)
    assert train.classes == tuple("0123456789") and train.name == "digits (1,437 + 360)"
    assert train.x.dtype == np.uint8 and max(train.x.max(), test.x.max()) == 16
    values = train.x / 255
    assert train.mean == test.mean and train.std == test.std
    np.testing.assert_allclose((train.mean[0], train.std[0]), (values.mean(), values.std()), rtol=1e-3)


@pytest.mark.parametrize("fraction", [0.001, 0.1, 0.2, 0.5, 0.9])
def test_digits_are_split_evenly_and_wholly(fraction):
    train, test = digits(test_fraction=fraction)
    assert len(train) + len(test) == 1797 and len(test) == np.ceil(1797 * fraction)
    counts = np.bincount(test.y, minlength=10), np.bincount(train.y, minlength=10)
    np.testing.assert_array_less(abs(counts[0] - sum(counts) * len(test) / 1797), 1.0001)
    whole = read_idx(builtin.FILES / "digits-images.idx3.gz")
    both = np.concatenate([train.x, test.x]).reshape(1797, -1)
    np.testing.assert_array_equal(np.sort(both, axis=0), np.sort(whole.reshape(1797, -1), axis=0))


@pytest.mark.parametrize("fraction", [0, 1, -0.5, 1.5, float("nan"), 0.9999])
def test_digits_need_a_fraction(fraction):
    with pytest.raises(ConfigError, match=r"test_fraction: expected between 0 and 1, .* got"):
        digits(test_fraction=fraction)


def test_the_shipped_subset(tmp_path):
    train, test = fashion_mnist()
    assert train.name == test.name == "Fashion-MNIST (shipped subset, 10,000 + 2,000)"
    assert train.x.shape == (10_000, 28, 28, 1) and test.x.shape == (2_000, 28, 28, 1)
    assert set(np.bincount(train.y)) == {1000} and set(np.bincount(test.y)) == {200}
    assert (train.mean, train.std, test.mean, test.std) == ((0.286,), (0.353,)) * 2
    assert train.classes[0] == "T-shirt/top" and train.classes[9] == "Ankle boot"
    # Close to the statistics of the subset itself, or the images would not be those the numbers are from.
    np.testing.assert_allclose((train.x / 255).mean(), 0.2860, atol=0.01)


@pytest.mark.parametrize("layout", [".", "fashion-mnist", "FashionMNIST/raw"])
def test_the_complete_set_in_a_folder(tmp_path, layout):
    write_complete(tmp_path / "here" / layout)
    train, test = fashion_mnist(tmp_path / "here")
    assert (len(train), len(test)) == (6, 4)
    assert train.name == f"Fashion-MNIST (complete, 6 + 4, {tmp_path / 'here' / layout})"
    assert train.classes == builtin.FASHION_CLASSES and train.mean == (float(f"{2.5 / 255:.4g}"),)


def test_the_complete_set_of_the_system_comes_before_the_subset(tmp_path):
    write_complete(tmp_path / "debian")
    assert fashion_mnist()[0].name == f"Fashion-MNIST (complete, 6 + 4, {tmp_path / 'debian'})"
    assert fashion_mnist(complete=True)[0].name.startswith("Fashion-MNIST (complete")
    assert fashion_mnist(complete=False)[0].name.startswith("Fashion-MNIST (shipped subset")


def test_complete_or_an_error_that_helps():
    with pytest.raises(FileError, match=r"complete Fashion-MNIST: .*dataset-fashion-mnist, give folder="):
        fashion_mnist(complete=True)


def test_a_folder_that_is_given_must_hold_the_set(tmp_path):
    with pytest.raises(FileError, match="no such folder"):
        fashion_mnist(tmp_path / "none")
    with pytest.raises(FileError, match="no train-images in"):
        fashion_mnist(tmp_path, complete=True)
    with pytest.raises(ConfigError, match="got both"):
        fashion_mnist(tmp_path, complete=False)


def test_a_damaged_set_is_not_passed_over(tmp_path):
    write_complete(tmp_path / "debian")
    (tmp_path / "debian" / "t10k-labels-idx1-ubyte.gz").write_bytes(b"<html>")
    with pytest.raises(FileError, match="a web page"):
        fashion_mnist()


@pytest.mark.parametrize(("sizes", "shape"), [((5, 4), (28, 28)), ((6, 3), (28, 28)), ((6, 4), (28, 27))])
def test_another_set_is_not_taken_for_the_complete_one(tmp_path, sizes, shape):
    write_complete(tmp_path / "other", sizes, shape)
    with pytest.raises(DataError, match=r"expected 6 \+ 4 images 28×28×1, got .* from_idx"):
        fashion_mnist(tmp_path / "other")


def test_load_by_name_and_by_folder(tmp_path, monkeypatch):
    assert len(load("digits")[0]) == 1437
    assert len(load("Fashion_MNIST")[1]) == len(load("fashion-mnist-subset")[1]) == 2_000
    write_complete(tmp_path / "set")
    assert load(tmp_path / "set")[0].name == load(str(tmp_path / "set"))[0].name == "set"
    monkeypatch.chdir(tmp_path)
    write_complete(Path("digits"))
    assert len(load("digits")[0]) == 1437 and len(load("./digits")[0]) == 6


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            "fashion",
            "a folder with IDX files or CIFAR-10, or an .npz file, got neither",
        ),
        ("digit", r"Did you mean 'digits'\?"),
        ("fasion_mnist", r"Did you mean 'fashion-mnist'\?"),
        ("", "unknown data set ''"),
        (__file__, "got a file"),
    ],
)
def test_load_what_is_not_there(given, message):
    with pytest.raises(ConfigError, match=message):
        load(given)


def test_every_name_loads():
    for name, make in builtin.BY_NAME.items():
        assert all(len(split) for split in make()), name


def test_example_images_fit_the_net_and_are_not_shipped_ones():
    train, test = fashion_mnist(complete=False)
    paths = sorted(EXAMPLES.glob("*.png"))
    assert [p.stem for p in paths] == ["ankle_boot", "bag", "pullover", "sneaker", "trouser"]
    for path in paths:
        image = read_image(path, (28, 28, 1))
        assert not (test.x == image).all(axis=(1, 2, 3)).any()
        nearest = np.square(train.x.astype(np.float32) - image).sum(axis=(1, 2, 3)).argmin()
        assert train.classes[train.y[nearest]].lower() == path.stem.replace("_", " ")
