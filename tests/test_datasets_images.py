"""One image from a file: formats, modes and sizes that fit, and what is said when they do not."""

import contextlib
import struct
import sys
import tracemalloc
import zlib

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from corenet.datasets.images import read_image, save_image
from corenet.errors import CorenetError, DataError, FileError, MissingExtraError, ShapeError

GREY = np.arange(5 * 7, dtype=np.uint8).reshape(5, 7, 1) * 7
COLOUR = np.arange(5 * 7 * 3, dtype=np.uint8).reshape(5, 7, 3) * 2


@pytest.mark.parametrize("array", [GREY, COLOUR], ids=["grey", "colour"])
@pytest.mark.parametrize("ending", ["png", "bmp", "tiff", "PNG"])
def test_what_is_saved_is_read(tmp_path, array, ending):
    path = tmp_path / f"a.{ending}"
    save_image(path, array)
    found = read_image(path, array.shape)
    assert found.dtype == np.uint8 and found.flags.c_contiguous and found.flags.writeable
    np.testing.assert_array_equal(found, array)


def test_two_dimensions_are_grey(tmp_path):
    save_image(tmp_path / "a.png", GREY[..., 0])
    np.testing.assert_array_equal(read_image(tmp_path / "a.png", (5, 7, 1)), GREY)


def test_grey_and_colour_convert(tmp_path):
    save_image(tmp_path / "grey.png", GREY)
    np.testing.assert_array_equal(read_image(tmp_path / "grey.png", (5, 7, 3)), np.repeat(GREY, 3, axis=2))
    save_image(tmp_path / "colour.png", COLOUR)
    grey = read_image(tmp_path / "colour.png", (5, 7, 1))
    np.testing.assert_allclose(grey[..., 0], COLOUR @ [0.299, 0.587, 0.114], atol=1)


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK"])
@pytest.mark.parametrize("channels", [1, 3])
def test_each_mode_of_8_bits(tmp_path, mode, channels):
    path = tmp_path / ("a.tiff" if mode == "CMYK" else "a.png")
    Image.new("RGB", (7, 5), "white").convert(mode).save(path)
    assert (read_image(path, (5, 7, channels)) == 255).all()


def test_a_palette_with_transparency(tmp_path):
    image = Image.new("P", (7, 5), 1)
    image.putpalette([0, 0, 0, 255, 255, 255])
    image.save(tmp_path / "a.png", transparency=b"\x80\xff")  # Pillow warns on the direct way to RGB
    assert (read_image(tmp_path / "a.png", (5, 7, 3)) == 255).all()


@pytest.mark.parametrize("mode", ["I;16", "I", "F"])
def test_more_than_8_bits_are_not_cut_off(tmp_path, mode):
    Image.new(mode, (7, 5), 300).save(tmp_path / "a.tiff")
    with pytest.raises(FileError, match=r"expected 8 bits a channel, got mode (I|F)"):
        read_image(tmp_path / "a.tiff", (5, 7, 1))


def test_another_size(tmp_path):
    save_image(tmp_path / "a.png", GREY)
    with pytest.raises(ShapeError, match=r"a\.png: expected 5×7 pixels \(width × height\).* got 7×5\. Crop or scale"):
        read_image(tmp_path / "a.png", (7, 5, 1))


def test_channels_that_no_image_has(tmp_path):
    save_image(tmp_path / "a.png", GREY)
    with pytest.raises(ShapeError, match=r"expected 2 channels, got .* np\.save"):
        read_image(tmp_path / "a.png", (5, 7, 2))


def test_files_that_are_no_image(tmp_path):
    (tmp_path / "a.png").write_text("not an image")
    (tmp_path / "a.eps").write_text("%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 7 5\n")
    (tmp_path / "empty.png").touch()
    for name, message in [
        ("a.png", r"expected an image \(PNG, "),
        ("a.eps", "expected an image"),
        ("empty.png", "expected an image"),
        ("none.png", "got no such file"),
        ("none.npy", "got no such file"),
        (".", "got a folder"),
    ]:
        with pytest.raises(FileError, match=message):
            read_image(tmp_path / name, (5, 7, 1))


def png(width, height, data=b""):
    def chunk(kind, content):
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    head = struct.pack(">2I5B", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(data)) + chunk(b"IEND", b"")


# 12,000² is within Pillow's limit of warning, 40,000² beyond its limit of error.
@pytest.mark.parametrize(("side", "error"), [(9_000, ShapeError), (12_000, ShapeError), (40_000, FileError)])
def test_a_decompression_bomb_is_refused_before_it_unpacks(tmp_path, side, error):
    (tmp_path / "a.png").write_bytes(png(side, side, bytes(1 << 20)))
    tracemalloc.start()
    try:
        with pytest.raises(error):
            read_image(tmp_path / "a.png", (28, 28, 1))
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


def test_a_truncated_image(tmp_path):
    (tmp_path / "a.png").write_bytes(png(7, 5, bytes(9)))
    with pytest.raises(FileError, match=r"expected a sound image, got .* truncated\."):
        read_image(tmp_path / "a.png", (5, 7, 1))


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_npy(tmp_path, dtype):
    path = tmp_path / "a.npy"
    for array, shape in [(GREY, (5, 7, 1)), (GREY[..., 0], (5, 7, 1)), (np.repeat(GREY, 2, axis=2), (5, 7, 2))]:
        np.save(path, array.astype(dtype))
        found = read_image(path, shape)
        assert found.shape == shape and found.dtype == dtype and type(found) is np.ndarray
        np.testing.assert_array_equal(found, array.reshape(shape))


def test_npy_that_does_not_fit(tmp_path):
    path = tmp_path / "a.npy"
    for array, error, message in [
        (GREY.astype(float), FileError, "expected uint8 or float32, got float64"),
        (GREY.astype(">f4"), FileError, "expected uint8 or float32, got >f4"),
        (np.array([None]), FileError, "expected one array saved by np.save"),
        (COLOUR, ShapeError, r"expected shape \(5, 7, 1\), as the net takes, got \(5, 7, 3\)"),
        (GREY.transpose(2, 0, 1), ShapeError, r"got \(1, 5, 7\)"),
        (np.full((5, 7), np.nan, np.float32), DataError, "NaN"),
    ]:
        np.save(path, array, allow_pickle=True)
        with pytest.raises(error, match=message):
            read_image(path, (5, 7, 1))


def test_npy_that_is_something_else(tmp_path):
    path = tmp_path / "a.npy"
    np.save(path, np.zeros((1 << 10, 1 << 10), np.uint8))
    whole = path.read_bytes()
    np.savez(tmp_path / "a.npz", GREY)
    archive = (tmp_path / "a.npz").read_bytes()
    for data in (b"", b"\x93NUMPY", whole[:-1], whole[:60], archive, b"\x80\x04N."):
        path.write_bytes(data)
        with pytest.raises(FileError, match="expected one array saved by"):
            read_image(path, (5, 7, 1))


def test_npy_that_claims_4_gb(tmp_path):
    path = tmp_path / "a.npy"
    with open(path, "wb") as file:
        np.lib.format.write_array_header_1_0(file, {"shape": (1 << 32,), "fortran_order": False, "descr": "|u1"})
        file.write(bytes(99))
    tracemalloc.start()
    try:
        with pytest.raises(FileError, match="expected one array saved by"):
            read_image(path, (5, 7, 1))
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


@settings(deadline=None, max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(["png", "bmp", "tiff", "gif", "jpeg", "ppm", "npy"]), st.data())
def test_mutated_files_are_an_image_or_an_error_of_ours(tmp_path, kind, data):
    path = tmp_path / f"a.{kind}"
    if kind == "npy":
        np.save(path, GREY)
    else:
        save_image(path, GREY)
    content = bytearray(path.read_bytes())
    for at, value in data.draw(st.lists(st.tuples(st.integers(0, len(content) - 1), st.integers(0, 255)), max_size=4)):
        content[at] = value
    path.write_bytes(content[: data.draw(st.integers(0, len(content)))])
    with contextlib.suppress(CorenetError):
        assert read_image(path, (5, 7, 1)).shape == (5, 7, 1)


@pytest.mark.parametrize(
    "array", [GREY.astype(float), np.zeros((5, 7, 4), "u1"), np.zeros(5, "u1"), np.zeros((0, 7), "u1")]
)
def test_arrays_that_are_no_image(tmp_path, array):
    with pytest.raises(DataError, match=r"cannot save .*: expected \(h, w\), "):
        save_image(tmp_path / "a.png", array)


@pytest.mark.parametrize("name", ["none/a.png", "a.unknown", "a"])
def test_places_an_image_cannot_be_saved(tmp_path, name):
    with pytest.raises(FileError, match="cannot save"):
        save_image(tmp_path / name, GREY)


def test_without_pillow(tmp_path, monkeypatch):
    save_image(tmp_path / "a.png", GREY)
    np.save(tmp_path / "a.npy", GREY)
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'corenet\[images\]'"):
        read_image(tmp_path / "a.png", (5, 7, 1))
    with pytest.raises(MissingExtraError, match="Pillow"):
        save_image(tmp_path / "b.png", GREY)
    assert read_image(tmp_path / "a.npy", (5, 7, 1)).shape == (5, 7, 1)
