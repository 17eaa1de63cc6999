"""Files damaged in every way: an error of corenet's, soon, and no more memory than the file has bytes."""

import tracemalloc
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from seeds import READERS

from corenet.errors import CorenetError

EXTREMES = [
    *(b"\0", b"\xff", b"\x7f", b"\x80", b"\0\0\0\0", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\xff\xff\xff\x7f"),
    *(b"\0\0\0\x80", b"\x80\0\0\0", b"\xff" * 8, b"\0\0\0\0\0\0\0\x80", b"9999999999"),
]
MEMORY = 4 << 20  # bytes that reading a file of some kilobytes may take at once: zlib's windows, Pillow's tables


@st.composite
def damaged(draw, seeds):
    """A sound file with pieces replaced, left out, repeated or put in."""
    content = bytearray(draw(st.sampled_from(seeds)))
    for _ in range(draw(st.integers(0, 4))):
        place = draw(st.integers(0, len(content)))
        if draw(st.booleans()):  # where headers are
            place = min(place, draw(st.integers(0, 200)))
        how = draw(st.integers(0, 4))
        piece = draw(st.sampled_from(EXTREMES) | st.binary(min_size=1, max_size=8))
        if how == 0:
            content[place : place + len(piece)] = piece
        elif how == 1:
            content[place:place] = piece
        elif how == 2:
            del content[place : place + draw(st.integers(1, 64))]
        elif how == 3:
            del content[place:]
        else:
            content[place:place] = content[place : place + draw(st.integers(1, 64))]
    return bytes(content)


@pytest.mark.parametrize("name", READERS)
def test_sound_files_are_read(name, tmp_path):
    ending, seeds, read = READERS[name]
    for content in seeds():
        path = tmp_path / f"file{ending}"
        path.write_bytes(content)
        assert read(path) is not None


@pytest.mark.parametrize("name", READERS)
def test_damaged_files_are_errors(name, tmp_path_factory):
    ending, make, read = READERS[name]
    seeds = make()
    path = tmp_path_factory.mktemp("fuzz") / f"file{ending}"
    outcomes = {"read": 0, "refused": 0}

    @settings(max_examples=250, deadline=None, suppress_health_check=list(HealthCheck))
    @given(damaged(seeds))
    def check(content):
        path.write_bytes(content)
        tracemalloc.start()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                read(path)
            outcomes["read"] += 1
        except CorenetError as error:
            outcomes["refused"] += 1
            assert str(path) in str(error)
        finally:
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
        assert peak < MEMORY + 20 * len(content), peak

    check()
    assert outcomes["refused"] > 50


def test_a_random_beginning_is_nobodys(tmp_path):
    for name, (ending, _, read) in READERS.items():
        path = Path(tmp_path, f"random{ending}")
        for content in (b"", b"<!DOCTYPE html><html>", b"<html>", bytes(100), np.arange(256).tobytes()):
            if name == "cifar-binary" and not content.startswith(b"<") and content:
                continue
            path.write_bytes(content)
            with pytest.raises(CorenetError) as caught:
                read(path)
            text = str(caught.value)
            assert str(path) in text
            if not content and name not in ("image", "npy", "npz"):
                assert "empty file" in text, (name, text)
            if content.startswith(b"<") and name not in ("image", "npy", "model", "checkpoint"):
                assert "web page" in text, (name, text)
