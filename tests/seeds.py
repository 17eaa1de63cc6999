"""Small sound files of every format that corenet reads, and how each is read: what fuzzing begins with."""

from __future__ import annotations

import gzip
import io
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np

from corenet.datasets import images, mat, npz
from corenet.datasets.cifar import read_binary, read_python
from corenet.datasets.idx import read_idx
from corenet.engine import make_plan
from corenet.models import get
from corenet.nn import describe
from corenet.optim import Adam
from corenet.optim import describe as describe_optimizer
from corenet.train.checkpoint import RESUMED_SETTINGS, VERSION, load_checkpoint
from corenet.train.model_file import ModelInfo, load_model, save_model
from corenet.train.tensor_file import write_arrays

PIXELS = np.arange(2 * 3 * 4, dtype=np.uint8).reshape(2, 3, 4)


def idx() -> list[bytes]:
    plain = bytes((0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4)) + PIXELS.tobytes()
    floats = bytes((0, 0, 13, 1, 0, 0, 0, 3)) + np.arange(3, dtype=">f4").tobytes()
    return [plain, floats, gzip.compress(plain, mtime=0), gzip.compress(floats, mtime=0)]


def cifar_binary() -> list[bytes]:
    return [bytes(range(10)) * 307 + bytes(3), bytes(3073 * 2)]


def cifar_python() -> list[bytes]:
    values = {"batch_label": b"one", "labels": [3, 7], "data": np.zeros((2, 3072), np.uint8), "filenames": ["a", "b"]}
    return [pickle.dumps(values, protocol) for protocol in range(5)]


def npz_file() -> list[bytes]:
    found = []
    for write in (np.savez, np.savez_compressed):
        stream = io.BytesIO()
        write(stream, x=PIXELS, y=np.asfortranarray(np.ones((2, 2), np.float32)))
        found.append(stream.getvalue())
    return found


def mat_file() -> list[bytes]:
    from scipy.io import savemat

    found = []
    for packed in (False, True):
        stream = io.BytesIO()
        arrays = {"other": np.arange(3), "x": PIXELS.astype(np.int16), "z": np.ones(2) * 1j, "t": "text"}
        savemat(stream, arrays, do_compression=packed)
        found.append(stream.getvalue())
    return found


def image() -> list[bytes]:
    from PIL import Image

    found = []
    for kind in images.FORMATS:
        stream = io.BytesIO()
        Image.fromarray(np.arange(64, dtype=np.uint8).reshape(8, 8)).save(stream, kind)
        found.append(stream.getvalue())
    return found


def npy_image() -> list[bytes]:
    stream = io.BytesIO()
    np.save(stream, np.zeros((8, 8), np.uint8))
    return [stream.getvalue()]


def _info() -> tuple[ModelInfo, dict[str, np.ndarray]]:
    net = get("digits_cnn")
    plan = make_plan(net, (8, 8, 1), 1)
    arrays = {"0.weight": np.ones((3, 3, 1, 2), np.float32), "0.bias": np.zeros(2, np.float32)}
    optimizer, loss = describe_optimizer(Adam(1e-3)), {"type": "CrossEntropy"}
    info = ModelInfo(describe(net, plan), (8, 8, 1), (0.0,), (1.0,), ("a", "b"), loss, optimizer, 8, 0, "digits")
    return info, arrays


def _written(write: Callable[[Path], None]) -> list[bytes]:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder, "file"))
        return [Path(folder, "file").read_bytes()]


def model() -> list[bytes]:
    return _written(lambda path: save_model(path, *_info()))


def checkpoint() -> list[bytes]:
    from dataclasses import asdict

    info, arrays = _info()
    progress = {
        "epochs_done": 1, "step": 9, "begun": {"steps": 2, "totals": [1.0, 2.0, 3.0, 4.0], "skipped": []},
        "batch_size": 8, "data": {}, "settings": dict.fromkeys(RESUMED_SETTINGS, "auto"), "records": [{"loss": 1.0}],
    }  # fmt: skip
    description = {"model": asdict(info), "progress": progress}
    return _written(lambda path: write_arrays(path, "checkpoint", VERSION, description, arrays))


Reader = Callable[[Path], object]
# Name → (the ending of such a file, sound ones, how they are read).
READERS: dict[str, tuple[str, Callable[[], list[bytes]], Reader]] = {
    "idx": ("", idx, read_idx),
    "cifar-binary": (".bin", cifar_binary, read_binary),
    "cifar-python": ("", cifar_python, read_python),
    "npz": (".npz", npz_file, lambda path: npz.read_npz(path, ("x", "y"))),
    "mat": (".mat", mat_file, lambda path: mat.read_mat(path, "x")),
    "image": ("", image, lambda path: images.read_image(path, (8, 8, 1))),
    "npy": (".npy", npy_image, lambda path: images.read_image(path, (8, 8, 1))),
    "model": ("", model, load_model),
    "checkpoint": ("", checkpoint, load_checkpoint),
}
