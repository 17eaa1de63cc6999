"""IDX files: round trips, every kind of damage, random bytes, and memory bounded by the data that exists."""

import gzip
import math
import os
import struct
import tracemalloc

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from corenet.datasets import from_idx
from corenet.datasets.idx import CODES, read_idx, write_idx
from corenet.errors import DataError, FileError

ARRAY = np.arange(2 * 3 * 4, dtype=np.uint8).reshape(2, 3, 4)
BYTES = b"\0\0\x08\x03" + struct.pack(">3I", 2, 3, 4) + ARRAY.tobytes()

no_fixture_check = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def header(*shape, code=8, ndim=None):
    return bytes((0, 0, code, len(shape) if ndim is None else ndim)) + struct.pack(f">{len(shape)}I", *shape)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "file"


@no_fixture_check
@given(data=st.data(), dtype=st.sampled_from(list(CODES)), packed=st.booleans(), big=st.booleans())
def test_what_is_written_is_read(tmp_path, data, dtype, packed, big):
    array = data.draw(hnp.arrays(dtype.newbyteorder(">") if big else dtype, hnp.array_shapes(max_dims=4, max_side=4)))
    path = tmp_path / ("a.gz" if packed else "a")
    write_idx(path, array)
    found = read_idx(path)
    assert found.dtype == dtype and found.dtype.isnative and found.flags.c_contiguous and found.flags.writeable
    np.testing.assert_array_equal(found, array)
    assert (path.read_bytes()[:2] == b"\x1f\x8b") == packed


def test_the_bytes_are_those_of_the_format(path):
    write_idx(path, ARRAY)
    assert path.read_bytes() == BYTES
    path.write_bytes(header(2, code=0x0B) + b"\x01\x02\xff\xfe")
    assert read_idx(path).tolist() == [0x0102, -2]


def test_gzip_is_seen_by_its_bytes_not_its_name(tmp_path):
    (tmp_path / "a.gz").write_bytes(BYTES)
    (tmp_path / "a").write_bytes(gzip.compress(BYTES))
    for name in ("a.gz", "a"):
        np.testing.assert_array_equal(read_idx(tmp_path / name), ARRAY)


def test_values_of_more_than_one_piece(path, monkeypatch):
    monkeypatch.setattr("corenet.datasets.idx._PIECE", 5)
    path.write_bytes(gzip.compress(BYTES[:20]) + gzip.compress(BYTES[20:]))
    np.testing.assert_array_equal(read_idx(path), ARRAY)


BAD = {
    "empty": (b"", "expected an IDX file, got an empty file"),
    "gzip of nothing": (gzip.compress(b""), "got an empty file"),
    "a web page": (b"\n <!DOCTYPE html><html>...", r"got a web page \(HTML\)"),
    "a packed web page": (gzip.compress(b"<html>not found</html>"), r"got a web page \(HTML\)"),
    "another format": (b"\x89PNG\r\n\x1a\n", "got first bytes 89 50 4e 47"),
    "3 bytes": (b"\0\0\x08", "got first bytes 00 00 08"),
    "unknown dtype": (header(2, code=7) + b"ab", "got first bytes 00 00 07 01"),
    "0 dimensions": (header() + b"a", "expected 1 to 4 dimensions, got 0"),
    "5 dimensions": (header(1, 1, 1, 1, 1) + b"a", "expected 1 to 4 dimensions, got 5"),
    "half a header": (header(2, ndim=3), "expected a header of 16 bytes for 3 dimensions, got 8 bytes in all"),
    "no values": (header(2, 0), "expected at least one value, got 2 × 0 uint8"),
    "truncated": (BYTES[:-1], r"expected 40 bytes \(16 \+ 2 × 3 × 4 uint8, from its header\), got 39 bytes"),
    "trailing": (BYTES + b"a", "expected 40 bytes .* got 41 bytes. There are trailing bytes"),
    "packed, truncated": (gzip.compress(BYTES[:-1]), r"expected 24 bytes of values \(2 × 3 × 4 uint8\), got 23"),
    "packed, trailing": (gzip.compress(BYTES + b"a"), "expected 24 bytes of values .* got more: trailing bytes"),
    "cut in the gzip": (gzip.compress(BYTES)[:-9], "expected a sound gzip file, got"),
    "half a gzip header": (gzip.compress(BYTES)[:5], "expected a sound gzip file, got"),
    "wrong checksum": (gzip.compress(BYTES)[:-8] + bytes(8), "expected a sound gzip file, got 'CRC check failed"),
    "after the gzip": (gzip.compress(BYTES) + b"PK", "expected a sound gzip file, got 'Not a gzipped file"),
    "claims 4 GB": (header(1 << 16, 1 << 16) + bytes(88), "expected 4,294,967,308 bytes .* got 100 bytes"),
    "claims 2**130 bytes": (header(*[2**32 - 1] * 4, code=0x0E), "got 20 bytes"),
    "packed, claims 4 GB": (gzip.compress(header(1 << 16, 1 << 16)), "packed bytes, which hold less"),
}


@pytest.mark.parametrize("case", BAD)
def test_damaged_files(path, case):
    data, message = BAD[case]
    path.write_bytes(data)
    with pytest.raises(FileError, match=message) as caught:
        read_idx(path)
    assert str(path) in str(caught.value)


def test_files_that_cannot_be_read(tmp_path):
    for path, message in [
        (tmp_path / "none", "got no such file"),
        (tmp_path, "got a folder"),
        ("a\0b", "expected an IDX file, got no such file"),
        ("/dev/zero", "got neither a file nor a folder"),
    ]:
        with pytest.raises(FileError, match=message):
            read_idx(path)


def test_a_pipe_does_not_wait(path):
    os.mkfifo(path)
    with pytest.raises(FileError, match="neither a file nor a folder"):
        read_idx(path)


def peak(path):
    """Most bytes that reading `path` had allocated at once, and the error."""
    tracemalloc.start()
    try:
        read_idx(path)
        error = None
    except FileError as caught:
        error = str(caught)
    finally:
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    return most, error


def test_a_decompression_bomb_is_refused(path):
    zeros = gzip.compress(bytes(100 << 20), 9)
    path.write_bytes(gzip.compress(header(4, 100 << 20)) + zeros * 4)
    most, error = peak(path)
    assert "decompression bomb" in error and most < 1 << 20
    # One that hides its size: more data than the header says.
    path.write_bytes(gzip.compress(header(10, 10)) + zeros)
    most, error = peak(path)
    assert "trailing bytes" in error and most < 1 << 20


def test_a_claim_is_not_allocated(path):
    # Random bytes do not pack, so the file could hold the 50 MB it claims, judged by its size; it has 1 MB.
    path.write_bytes(gzip.compress(header(50 << 20) + os.urandom(1 << 20)))
    most, error = peak(path)
    assert "expected 52,428,800 bytes" in error and most < 4 << 20


def test_reading_takes_no_more_than_the_data(path):
    write_idx(path, np.zeros((8 << 20,), np.int16))
    most, error = peak(path)
    assert error is None and most < 22 << 20  # 16 MB, a piece on the way, what a bytearray keeps in reserve


RAW = {str(d): header(3, 5, code=code) + bytes(range(15 * d.itemsize)) for d, code in CODES.items()}
SOUND = [*RAW.values(), *(gzip.compress(data) for data in RAW.values())]


@settings(no_fixture_check, max_examples=300)
@given(st.binary(max_size=200) | st.builds(lambda a, b: a + b, st.sampled_from(SOUND), st.binary(max_size=9)))
@example(b"\0\0\x08\x04" + b"\xff" * 100)
def test_random_bytes_are_an_array_or_a_file_error(path, data):
    path.write_bytes(data)
    check_fuzzed(path)


@settings(no_fixture_check, max_examples=400)
@given(
    st.sampled_from(SOUND),
    st.lists(st.tuples(st.integers(0, 60), st.integers(0, 255)), max_size=4),
    st.integers(0, 200),
)
def test_mutated_files_are_an_array_or_a_file_error(path, sound, changes, length):
    data = bytearray(sound)
    for at, value in changes:
        data[at % len(data)] = value
    path.write_bytes(data[:length])
    check_fuzzed(path)


@settings(no_fixture_check, max_examples=200)
@given(st.lists(st.integers(0, 2**32 - 1) | st.integers(0, 9), min_size=1, max_size=4), st.binary(max_size=60))
def test_headers_that_lie_inside_gzip(path, shape, values):
    path.write_bytes(gzip.compress(header(*shape) + values, 1))
    check_fuzzed(path, sound=len(values) == math.prod(shape) > 0)


def check_fuzzed(path, sound=None):
    most, error = peak(path)  # anything but a FileError ends the test
    assert most < 64 << 20
    assert sound is None or (error is None) == sound


def test_the_same_array_gives_the_same_bytes(tmp_path, monkeypatch):
    write_idx(tmp_path / "a.gz", ARRAY)
    monkeypatch.setattr("time.time", lambda: 1e9)
    write_idx(tmp_path / "b.gz", ARRAY)
    assert (tmp_path / "a.gz").read_bytes() == (tmp_path / "b.gz").read_bytes()


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (ARRAY.astype(np.int64), "expected one of uint8, int8, .* got int64"),
        (ARRAY > 0, "got bool"),
        (np.uint8(3), r"got shape \(\)"),
        (np.zeros((1,) * 5, np.uint8), "expected 1 to 4 dimensions"),
        (np.zeros((2, 0), np.uint8), r"got shape \(2, 0\)"),
    ],
)
def test_arrays_that_cannot_be_written(path, array, message):
    with pytest.raises(DataError, match=message):
        write_idx(path, array)
    assert not path.exists()


def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path, monkeypatch):
    path = tmp_path / "a"
    write_idx(path, ARRAY)

    def fail(*args):
        raise OSError("disk full")

    monkeypatch.setattr("os.replace", fail)
    with pytest.raises(FileError, match=r"cannot write .*disk full"):
        write_idx(path, ARRAY[:1])
    assert [p.name for p in tmp_path.iterdir()] == ["a"] and path.read_bytes() == BYTES
    with pytest.raises(FileError, match="No such file"):
        write_idx(tmp_path / "none" / "a", ARRAY)


# A folder with the four files


def write_folder(folder, *, n_train=20, n_test=10, classes=4, shape=(5, 6), separator="-", ending=".gz", idx=3):
    rng = np.random.default_rng(0)
    folder.mkdir(exist_ok=True)
    for stem, n in (("train", n_train), ("t10k", n_test)):
        images = rng.integers(0, 256, (n, *shape), dtype=np.uint8)
        write_idx(folder / f"{stem}-images{separator}idx{idx}-ubyte{ending}", images)
        write_idx(folder / f"{stem}-labels{separator}idx1-ubyte{ending}", (np.arange(n) % classes).astype(np.uint8))
    return folder


@pytest.mark.parametrize("separator", ["-", "."])
@pytest.mark.parametrize("ending", ["", ".gz"])
def test_a_folder(tmp_path, separator, ending):
    folder = write_folder(tmp_path / "set", separator=separator, ending=ending)
    train, test = from_idx(folder)
    assert (len(train), len(test), train.sample_shape, train.name) == (20, 10, (5, 6, 1), "set")
    assert train.classes == test.classes == ("0", "1", "2", "3")
    values = train.x / 255
    assert train.mean == test.mean == (float(f"{values.mean():.4g}"),)
    assert train.std == test.std == (float(f"{values.std():.4g}"),)
    assert from_idx(folder, name="other", classes=["a", "b", "c", "d"])[1].name == "other"


def test_colour_and_a_class_that_one_split_lacks(tmp_path):
    folder = write_folder(tmp_path / "set", shape=(5, 6, 3), idx=4, classes=12)
    train, test = from_idx(folder)
    assert train.sample_shape == (5, 6, 3) and train.n_classes == test.n_classes == 12 > test.y.max() + 1
    train, test = from_idx(write_folder(tmp_path / "other", n_train=3))
    assert train.n_classes == test.n_classes == 4 > train.y.max() + 1


def test_folders_that_are_none(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(FileError, match=r"got no such folder\. Looked for: train-images-idx3-ubyte"):
        from_idx(tmp_path / "none")
    with pytest.raises(FileError, match="expected a folder with IDX files, got a file"):
        from_idx(tmp_path / "file")


@pytest.mark.parametrize("name", ["train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1"])
def test_a_file_that_is_missing_is_named(tmp_path, name):
    write_folder(tmp_path)
    (tmp_path / f"{name}-ubyte.gz").unlink()
    with pytest.raises(FileError, match=rf"no {name[:-5]} in .*: expected {name}-ubyte"):
        from_idx(tmp_path)


def test_files_that_do_not_belong_together(tmp_path):
    write_folder(tmp_path)
    write_idx(tmp_path / "t10k-labels-idx1-ubyte.gz", np.zeros(9, np.uint8))
    with pytest.raises(DataError, match=r"test' differ in number: expected 10 labels, one for each image, got 9"):
        from_idx(tmp_path)
    write_folder(tmp_path)
    write_idx(tmp_path / "t10k-images-idx3-ubyte.gz", np.zeros((10, 6, 5), np.uint8))
    with pytest.raises(DataError, match=r"expected \(5, 6, 1\) as in training, got \(6, 5, 1\)"):
        from_idx(tmp_path)
    write_folder(tmp_path, classes=5)
    with pytest.raises(DataError, match="train': expected labels from 0 to 2, for 3 classes, got 4 at index 4"):
        from_idx(tmp_path, classes=["a", "b", "c"])
    write_idx(tmp_path / "t10k-labels-idx1-ubyte.gz", np.full(10, 5, np.uint8))
    with pytest.raises(DataError, match="test': expected labels from 0 to 4, for 5 classes, got 5 at index 0"):
        from_idx(tmp_path, classes=list("abcde"))


def test_labels_that_are_no_classes(tmp_path):
    write_folder(tmp_path)
    write_idx(tmp_path / "t10k-labels-idx1-ubyte.gz", np.full(10, 70_000, np.int32))
    with pytest.raises(DataError, match=r"labels.*expected class numbers up to 65,535, got 70000. Number the classes"):
        from_idx(tmp_path)
    write_idx(tmp_path / "t10k-labels-idx1-ubyte.gz", np.full(10, 65_535, np.int32))
    assert [s.n_classes for s in from_idx(tmp_path)] == [65_536, 65_536]
    for split, n in (("train", 20), ("t10k", 10)):
        write_idx(tmp_path / f"{split}-labels-idx1-ubyte.gz", np.full(n, 0.5, np.float32))
    assert [s.classes for s in from_idx(tmp_path)] == [(), ()]
