"""CIFAR-10 in both versions, .npz and MATLAB's files: what is sound is read, what is not is one clear error."""

import io
import pickle
import struct
import zipfile
import zlib

import numpy as np
import pytest

from corenet import datasets
from corenet.datasets import cifar, plain_pickle
from corenet.datasets.npz import read_npz
from corenet.errors import ConfigError, CorenetError, DataError, FileError, MissingExtraError

GENERATOR = np.random.default_rng(0)


# CIFAR-10.


def batches(n: int = 4):
    """Planes and labels of the six files."""
    names = (*cifar.TRAIN, *cifar.TEST)
    x = GENERATOR.integers(0, 256, (len(names), n, 3072)).astype(np.uint8)
    y = GENERATOR.integers(0, 10, (len(names), n))
    return {name: (x[i], y[i]) for i, name in enumerate(names)}


def write(folder, version, files):
    folder.mkdir(parents=True, exist_ok=True)
    for name, (x, y) in files.items():
        if version == "binary":
            records = np.concatenate([y.astype(np.uint8)[:, None], x], axis=1)
            (folder / f"{name}.bin").write_bytes(records.tobytes())
        else:
            values = {b"data": x, b"labels": y.tolist(), b"batch_label": b"", b"filenames": [b"a.png"] * len(x)}
            (folder / name).write_bytes(pickle.dumps(values, protocol=2))


@pytest.mark.parametrize(
    "version, below", [("binary", "cifar-10-batches-bin"), ("python", "."), ("python", "cifar-10-batches-py")]
)
def test_cifar10(version, below, tmp_path):
    files = batches()
    write(tmp_path / below, version, files)
    for read in (datasets.from_cifar10, datasets.load):
        train, test = read(tmp_path)
        assert (len(train), len(test), train.sample_shape) == (20, 4, (32, 32, 3))
        x, y = files["data_batch_2"]
        assert (train.x[4:8, 5, 7, 2] == x[:, 2 * 1024 + 5 * 32 + 7]).all()  # rows, then columns, of the blue plane
        assert (train.y[4:8] == y).all() and train.classes[y[0]] == cifar.CLASSES[y[0]]
        assert train.mean == test.mean and 0.4 < train.mean[0] < 0.6


def test_cifar10_that_is_incomplete_or_false(tmp_path):
    with pytest.raises(FileError, match=r"no CIFAR-10 in .*expected data_batch_1 … data_batch_5 and test_batch"):
        datasets.from_cifar10(tmp_path)
    files = batches()
    write(tmp_path, "binary", files)
    whole = (tmp_path / "data_batch_3.bin").read_bytes()
    for content, message in {
        whole[:-1]: r"data_batch_3.bin: expected .*records of 3,073 bytes, got 12,291 bytes",
        b"": "an empty file",
        b"<!DOCTYPE html>": r"a web page \(HTML\)",
    }.items():
        (tmp_path / "data_batch_3.bin").write_bytes(content)
        with pytest.raises(FileError, match=message):
            datasets.from_cifar10(tmp_path)
    (tmp_path / "data_batch_3.bin").write_bytes(bytes([10]) + whole[1:])
    with pytest.raises(DataError, match=r"labels of .*train: expected 0 to 9, got 0 to 10|got 1 to 10"):
        datasets.from_cifar10(tmp_path)
    (tmp_path / "data_batch_3.bin").unlink()
    with pytest.raises(FileError, match=r"data_batch_3.bin: expected .*got no such file"):
        datasets.from_cifar10(tmp_path)
    with open(tmp_path / "data_batch_3.bin", "wb") as file:
        file.truncate(cifar.MAX_BYTES + 1)  # takes no space
    with pytest.raises(FileError, match="expected at most 268,435,456 bytes"):
        datasets.from_cifar10(tmp_path)


def test_a_truck_whose_first_pixel_is_60_is_no_web_page(tmp_path):
    path = tmp_path / "data_batch_1.bin"
    path.write_bytes(bytes([9, 60]) + bytes(3071))
    assert cifar.read_binary(path)[1].tolist() == [9]


@pytest.mark.timeout(20)
def test_a_small_pickle_that_is_endless_to_look_at():
    nested = b"\x80\x02)" + b"q\x00h\x00\x86" * 100  # a tuple of twice itself, a hundred times
    for end in (b"K\x01s.", b"cnumpy\ndtype\nh\x00R.", b"."):
        with pytest.raises((ValueError, LookupError)):
            plain_pickle.loads(b"\x80\x02}" + nested[2:] + end)


class Evil:
    def __reduce__(self):
        return exec, ("raise SystemExit('it was run')",)


class Odd:
    def __init__(self):
        self.a = 1


@pytest.mark.parametrize("protocol", range(5))
def test_a_pickle_that_wants_more_is_refused(protocol, tmp_path):
    sound = {"data": np.zeros((2, 3072), np.uint8), "labels": [1, 2]}
    path = tmp_path / "data_batch_1"
    path.write_bytes(pickle.dumps(sound, protocol))
    assert cifar.read_python(path)[0].shape == (2, 3072)
    for value, message in (
        (Evil(), "a pickle that wants (builtins|__builtin__).exec"),
        (Odd(), "a pickle that wants|a pickle with the instruction"),
        (np.zeros(3072), "a pickle that calls|array of something else"),
        (np.random.default_rng(), "a pickle that wants"),
    ):
        for place in ("data", "labels", "more"):
            path.write_bytes(pickle.dumps({**sound, place: value}, protocol))
            with pytest.raises(FileError, match=message):
                cifar.read_python(path)
    labels = ({**sound, "labels": wrong} for wrong in ([1], [1, 300], "ab", [1, -1], [1, 2.0]))
    data = ({**sound, "data": wrong} for wrong in (np.zeros((2, 3071), np.uint8), b"12", np.zeros((0, 3072), np.uint8)))
    for wrong in (*labels, *data, {"data": sound["data"]}, [1, 2], "text"):
        path.write_bytes(pickle.dumps(wrong, protocol))
        with pytest.raises(FileError, match="expected a CIFAR-10 batch"):
            cifar.read_python(path)


def test_a_pickle_of_pythons_second_version():
    """As the published files were written: text is bytes, and an array's content too."""
    old = (
        b"\x80\x02}q\x01(U\x04dataq\x02cnumpy.core.multiarray\n_reconstruct\nq\x03cnumpy\nndarray\nq\x04K\x00\x85"
        b"U\x01b\x87Rq\x05(K\x01K\x02K\x03\x86cnumpy\ndtype\nq\x06U\x02u1K\x00K\x01\x87Rq\x07(K\x03U\x01|NNN"
        b"J\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89U\x06\x00\x01\x02\x03\xfe\xfftbU\x06labelsq\x08]q\x09(K\x05K\x06eu."
    )
    values = plain_pickle.loads(old)
    assert values["data"].tolist() == [[0, 1, 2], [3, 254, 255]] and values["labels"] == [5, 6]
    with pytest.raises(ValueError, match=r"an array of shape \(2, 4\) with 6 bytes"):
        plain_pickle.loads(old.replace(b"K\x02K\x03\x86", b"K\x02K\x04\x86"))
    for wrong in (
        b"",
        b".",
        b"\x80\x02.",
        b"(.",
        b"\x80\x02]q\x00.",
        b"\x80\x02K\x01K\x02.",
        b"t.",
        b"\x80\x02h\x05.",
        b"e.",
    ):
        with pytest.raises((ValueError, LookupError)):
            plain_pickle.loads(wrong)


# npz.


def test_npz(tmp_path):
    x, y = GENERATOR.integers(0, 256, (9, 5, 4)).astype(np.uint8), np.arange(9) % 3
    for save in (np.savez, np.savez_compressed):
        save(tmp_path / "some.npz", x_train=x[:6], y_train=y[:6], x_test=x[6:], y_test=y[6:] % 2)
        for read in (datasets.from_npz, datasets.load):
            train, test = read(tmp_path / "some.npz")
            assert (train.x[..., 0] == x[:6]).all() and (test.y == y[6:] % 2).all()
            assert train.classes == test.classes == ("0", "1", "2") and train.name == "some"
            assert train.mean == test.mean
    fortran = np.asfortranarray(GENERATOR.normal(size=(3, 4)))
    np.savez(tmp_path / "f.npz", a=fortran, b=np.float32(3))
    assert (read_npz(tmp_path / "f.npz", ("a",))["a"] == fortran).all() and read_npz(tmp_path / "f.npz", ("b",))[
        "b"
    ] == 3


def archive(path, content: bytes, **settings):
    with zipfile.ZipFile(path, "w", **{"compression": zipfile.ZIP_DEFLATED, **settings}) as file:
        file.writestr("x.npy", content)


def npy(shape: str, content: bytes = b"", descr: str = "'|u1'") -> bytes:
    header = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}}}\n".encode()
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + content


@pytest.mark.parametrize(
    "content, message",
    [
        (npy("(4000000000,)", b"12"), "2 bytes for 4,000,000,000"),
        (npy("(2**40,)", b"12"), "Error"),
        (npy("(-1,)", b"12"), "shape"),
        (npy("(2,)", b"12", "'|O'"), "not plain numbers"),
        (npy("(1,)", b"12", "[('a', '|u1'), ('b', '|u1')]"), "not plain numbers"),
        (npy("(3,)", b"12"), "2 bytes for 3"),
        (npy("(1,)", b"12"), "2 bytes for 1"),
        (b"\x93NUMPY\x09\x00", "version"),
        (b"nothing", "magic"),
        (npy("(200000000,)", bytes(200_000_000)), "decompression bomb"),
    ],
)
def test_an_npz_with_false_claims(content, message, tmp_path):
    archive(tmp_path / "x.npz", content)
    with pytest.raises(FileError, match=message):
        read_npz(tmp_path / "x.npz", ("x",))


def test_other_files_that_are_no_npz(tmp_path):
    path = tmp_path / "x.npz"
    np.savez(path, x=np.zeros(3))
    whole = path.read_bytes()
    with pytest.raises(FileError, match=r"expected arrays x_train, y_train, x_test, y_test, got x"):
        datasets.load(path)
    np.savez(tmp_path / "objects.npz", x=np.array([{}, Evil()], dtype=object))
    with pytest.raises(FileError, match="not plain numbers"):
        read_npz(tmp_path / "objects.npz", ("x",))
    for content in (b"", whole[:-30], b"<html>", whole.replace(b"\x93NUMPY", b"\x93NUMPI")):
        path.write_bytes(content)
        with pytest.raises(FileError, match=r"x\.npz"):
            read_npz(path, ("x",))
    archive(path, npy("(2,)", b"12"), compression=zipfile.ZIP_BZIP2)
    with pytest.raises(FileError, match="packed in another way"):
        read_npz(path, ("x",))
    with pytest.raises(FileError, match="no such file"):
        datasets.load(tmp_path / "none.npz")
    with pytest.raises(ConfigError, match="unknown data set"):
        datasets.load(tmp_path / "none.npy")


# MATLAB.


def test_mat_of_both_versions_has_matlabs_shapes(tmp_path):
    import h5py
    from scipy.io import savemat

    scene = GENERATOR.integers(0, 999, (4, 3, 2)).astype(np.int16)
    for packed in (False, True):
        savemat(tmp_path / "5.mat", {"truth": scene[..., 0], "scene": scene, "z": scene * 1j}, do_compression=packed)
        for name, expected in (("scene", scene), ("truth", scene[..., 0]), ("z", scene * 1j)):
            got = datasets.read_mat(tmp_path / "5.mat", name)
            assert got.shape == expected.shape and (got == expected).all()
    with h5py.File(tmp_path / "73.mat", "w", userblock_size=512) as file:
        file["scene"] = scene.transpose()  # as MATLAB writes it
        file.create_dataset("packed", data=scene.transpose(), compression="gzip", chunks=True)
    for name in ("scene", "packed"):
        got = datasets.read_mat(tmp_path / "73.mat", name)
        assert got.shape == (4, 3, 2) and (got == scene).all() and got.flags.c_contiguous
    for path in ("5.mat", "73.mat"):
        with pytest.raises(FileError, match=r"expected an array 'other', got .*'scene'"):
            datasets.read_mat(tmp_path / path, "other")


def test_mat_with_false_claims(tmp_path):
    import h5py
    from scipy.io import savemat

    path = tmp_path / "x.mat"
    stream = io.BytesIO()
    savemat(
        stream, {"x": np.arange(12, dtype=np.int32).reshape(3, 4), "text": "abc", "cell": np.array([1, "a"], object)}
    )
    whole = stream.getvalue()
    shape = (3).to_bytes(4, "little") + (4).to_bytes(4, "little")
    assert whole.count(shape) == 1
    for content, message in {
        whole.replace(shape, b"\xff\xff\xff\x3f" + shape[4:]): "has 48 bytes of numbers",
        whole.replace(shape, b"\xff\xff\xff\xff" + shape[4:]): "has the shape",
        whole[:132] + b"\xff\xff\xff\x7f" + whole[136:]: "an element of 2,147,483,647 bytes where",
        whole[:200]: "an element of|ends too early",
        b"": "an empty file",
        b"<!DOCTYPE html>": "a web page",
        bytes(200): "first bytes 00",
    }.items():
        path.write_bytes(content)
        with pytest.raises(FileError, match=message):
            datasets.read_mat(path, "x")
    (length,) = struct.unpack_from("<I", whole, 132)
    for claim in (length, length + 8, length - 8):
        packed = zlib.compress(struct.pack("<II", 14, claim) + whole[136 : 136 + length])
        path.write_bytes(whole[:128] + struct.pack("<II", 15, len(packed)) + packed)
        if claim == length:
            assert datasets.read_mat(path, "x").shape == (3, 4)
        else:
            with pytest.raises(FileError, match=f"an element of {claim} bytes that unpacks to"):
                datasets.read_mat(path, "x")
    path.write_bytes(whole)
    for name in ("text", "cell"):
        with pytest.raises(FileError, match=f"{name} is no array of numbers"):
            datasets.read_mat(path, name)
    savemat(path, {"x": np.zeros(100_000_000, np.uint8)}, do_compression=True)
    with pytest.raises(FileError, match="decompression bomb"):
        datasets.read_mat(path, "x")
    with h5py.File(path, "w") as file:
        file.create_dataset("x", (1 << 20, 1 << 12), "f8", chunks=True)  # claims 32 GB and has nothing
        file["link"] = h5py.ExternalLink(str(tmp_path / "y.mat"), "x")
        file["soft"] = h5py.SoftLink("/x")
        file["text"] = "abc"
        file.create_group("group")
    for name, message in {
        "x": "0 packed bytes, which hold less", "link": "expected an array 'link'", "soft": "expected an array 'soft'",
        "text": "no array of numbers", "group": "no array of numbers",
    }.items():  # fmt: skip
        with pytest.raises(FileError, match=message):
            datasets.read_mat(path, name)


@pytest.mark.parametrize("module, version", [("scipy.io", "v5"), ("h5py", "v7.3")])
def test_without_the_extra(module, version, tmp_path, monkeypatch):
    import sys

    import h5py
    from scipy.io import savemat

    path = tmp_path / "x.mat"
    savemat(path, {"x": np.zeros(3)})
    if version == "v7.3":
        with h5py.File(path, "w") as file:
            file["x"] = np.zeros(3)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtraError, match=r"pip install 'corenet\[mat\]'") as caught:
        datasets.read_mat(path, "x")
    assert isinstance(caught.value, CorenetError)
