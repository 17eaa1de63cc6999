"""Shared memory: the same bytes in every process, refused when too large, gone without a trace afterwards."""

import gc
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corenet.errors import ConfigError
from corenet.parallel import cgroup, memory
from corenet.parallel.channel import Channel
from corenet.parallel.memory import ALIGNMENT, NotEnoughMemoryError, Segment
from corenet.parallel.topology import plan_layout

FIELDS = {"params": ((2, 100), np.float32), "images": ((7, 3, 3), np.uint8), "empty": ((0, 5), "<f8"), "t": ((), "<i8")}

ADD_ONE = """
import sys
from corenet.parallel.channel import Channel
from corenet.parallel.memory import Segment
with Channel(int(sys.argv[1])) as channel:
    spec, fds = channel.receive()
    with Segment.attach(fds[0], spec["spec"]) as segment:
        for array in segment.arrays.values():
            array += 1
        del array
    channel.send({})
"""


@pytest.fixture(params=["memory", "file", "no memfd"])
def create(request, tmp_path, monkeypatch):
    """Segment.create, for each kind of memory behind it."""
    if request.param == "memory" and not hasattr(os, "memfd_create"):
        pytest.skip("this system has no anonymous shared memory")
    if request.param == "no memfd":
        monkeypatch.delattr(os, "memfd_create", raising=False)
        monkeypatch.setattr(memory.tempfile, "tempdir", str(tmp_path))
    directory = tmp_path if request.param == "file" else None
    return lambda fields: Segment.create(fields, directory=directory)


def listing(*folders) -> list[str]:
    return [name for folder in folders if os.path.isdir(folder) for name in sorted(os.listdir(folder))]


def open_fds() -> list[str]:
    return listing("/proc/self/fd")


def test_arrays_are_as_asked_for_and_zero(create):
    with create(FIELDS) as segment:
        assert list(segment.arrays) == list(FIELDS)
        for name, (shape, dtype) in FIELDS.items():
            array = segment[name]
            assert (array.shape, array.dtype) == (shape, np.dtype(dtype))
            assert not array.any()
            assert array.ctypes.data % ALIGNMENT == 0


def test_arrays_do_not_overlap(create):
    with create(FIELDS) as segment:
        for i, array in enumerate(segment.arrays.values()):
            array.fill(i + 1)
        for i, array in enumerate(segment.arrays.values()):
            assert (array == i + 1).all()


def test_another_process_writes_to_the_same_memory(create):
    before = listing("/dev/shm"), len(open_fds())
    with create(FIELDS) as segment:
        ours, theirs = Channel.pair()
        command = [sys.executable, "-W", "error", "-c", ADD_ONE, str(theirs.fileno())]
        with ours, subprocess.Popen(command, pass_fds=[theirs.fileno()]) as worker:
            theirs.close()
            segment["params"][:] = np.arange(100)
            ours.send({"spec": segment.spec}, [segment.fd])
            ours.receive()
            assert worker.wait(30) == 0
        assert (segment["params"] == np.arange(100) + 1).all()
        assert (segment["images"] == 1).all() and segment["t"] == 1
        assert listing("/dev/shm") == before[0]
    assert (listing("/dev/shm"), len(open_fds())) == before


def test_no_file_has_a_name(create, tmp_path):
    with create({"a": ((1000,), np.float64)}):
        assert listing(tmp_path) == []


def test_the_description_survives_json(create):
    with create(FIELDS) as segment:
        segment["params"].fill(3)
        spec = json.loads(json.dumps(segment.spec))
        with Segment.attach(os.dup(segment.fd), spec) as again:
            assert again.size == segment.size and again.size % ALIGNMENT == 0
            assert (again["params"] == 3).all()


def test_closing_is_silent_while_arrays_are_in_use(create):
    segment = create(FIELDS)
    row = segment["params"][1]
    segment.close()
    segment.close()
    row[:] = 5  # still mapped
    assert row.sum() == 500
    del row
    gc.collect()


@pytest.mark.skipif(not os.path.exists("/proc/self/maps"), reason="reads the process's mappings")
def test_memory_goes_when_the_last_array_does():
    def mapped() -> bool:
        return "memfd:corenet" in Path("/proc/self/maps").read_text()

    gc.collect()
    assert not mapped()
    segment = Segment.create(FIELDS)
    view = segment["params"][0]
    segment.close()
    assert mapped()
    del view
    assert not mapped()


@pytest.mark.parametrize(
    "fields",
    [{}, {"a": ((0,), np.float32)}, {"a": ((3, 0), np.uint8), "b": ((2,), np.uint8), "c": ((0,), np.float64)}],
)
def test_nothing_at_all_is_a_segment_too(create, fields):
    with create(fields) as segment, Segment.attach(os.dup(segment.fd), segment.spec) as again:
        for each in (segment, again):
            assert {name: array.shape for name, array in each.arrays.items()} == {n: f[0] for n, f in fields.items()}


@given(st.lists(st.tuples(st.lists(st.integers(0, 5), max_size=3), st.sampled_from(["u1", "<i2", "<f8", "?"]))))
def test_any_table_of_arrays_is_laid_out_without_overlap(table):
    with Segment.create({str(i): (tuple(shape), dtype) for i, (shape, dtype) in enumerate(table)}) as segment:
        end = 0
        for (_, shape, dtype, offset), array in zip(segment.spec, segment.arrays.values(), strict=True):
            assert offset % ALIGNMENT == 0 and offset >= end
            assert (list(array.shape), array.dtype) == (shape, np.dtype(dtype))
            end = offset + array.nbytes
        assert segment.size >= end


@pytest.mark.parametrize("dtype", [object, "f4,f4", "(2,)f4", "V0", "U0"])
def test_only_plain_numbers_are_shared(dtype):
    with pytest.raises(ConfigError, match="'a'"):
        Segment.create({"a": ((2,), dtype)})


def test_negative_lengths_are_refused():
    with pytest.raises(ConfigError, match="lengths"):
        Segment.create({"a": ((2, -1), np.float32)})


def test_memory_that_is_promised_counts(monkeypatch):
    """What nobody has written to takes no memory yet, but will."""
    with Segment.create({"a": ((1 << 20,), "uint8"), "b": ((1 << 20,), "uint8")}) as first:
        assert first.untouched == first.size == 2 << 20
        first["a"][:] = 1
        assert first.untouched == 1 << 20
        monkeypatch.setattr(cgroup, "memory_free", lambda root: 3 << 20)
        fields = {"c": ((2 << 20,), "uint8")}
        Segment.create(fields, promised=first.untouched).close()
        with pytest.raises(NotEnoughMemoryError, match=r"expected 0\.00 GB of free memory"):
            Segment.create(fields, promised=first.untouched + 64)


def test_a_crew_counts_what_its_segments_will_take(crews, monkeypatch):
    crew = crews(plan_layout(1), "numpy")
    crew.share("first", {"a": ((1 << 20,), "uint8")})
    monkeypatch.setattr(cgroup, "memory_free", lambda root: (2 << 20) - 1)
    with pytest.raises(NotEnoughMemoryError):
        crew.share("second", {"a": ((1 << 20,), "uint8")})
    crew.segments["first"]["a"][:] = 1
    crew.share("second", {"a": ((1 << 20,), "uint8")})
    for name in ("first", "second"):
        crew.forget(name)


def test_too_little_memory_is_said_before_it_hurts():
    before = open_fds()
    with pytest.raises(NotEnoughMemoryError, match=r"4000000000\.00 GB of free memory, got .* GB free\. Use a smaller"):
        Segment.create({"a": ((10**9, 10**9), np.float32)})
    assert issubclass(NotEnoughMemoryError, MemoryError)
    assert open_fds() == before


def test_the_limit_of_the_container_counts(monkeypatch):
    monkeypatch.setattr(cgroup, "memory_free", lambda root: 10_000)
    Segment.create({"a": ((9_900,), "u1")}).close()
    with pytest.raises(NotEnoughMemoryError):
        Segment.create({"a": ((10_001,), "u1")})


def test_too_small_a_disk_is_said_before_it_hurts(tmp_path):
    before = open_fds()
    with pytest.raises(NotEnoughMemoryError, match=r"free space in .*TMPDIR"):
        Segment.create({"a": ((10**9, 10**9), np.float32)}, directory=tmp_path)
    assert open_fds() == before
    assert listing(tmp_path) == []


def test_a_block_shorter_than_its_description_is_refused(create):
    with create({"a": ((10,), "u1")}) as segment:
        spec = [["a", [10_000], "|u1", 0]]
        with pytest.raises(ConfigError, match="bytes"):
            Segment.attach(segment.fd, spec)


def test_nothing_is_left_when_the_process_is_killed(tmp_path):
    code = f"""
import os, signal
from corenet.parallel.memory import Segment
memory = Segment.create({{"a": ((1000,), "f4")}})
file = Segment.create({{"a": ((1000,), "f4")}}, directory={str(tmp_path)!r})
os.kill(os.getpid(), signal.SIGKILL)
"""
    before = listing("/dev/shm")
    process = subprocess.run([sys.executable, "-c", code], capture_output=True)
    assert (process.returncode, process.stderr) == (-9, b"")
    assert listing("/dev/shm") == before
    assert listing(tmp_path) == []


def test_leaving_it_open_at_the_end_is_silent():
    code = "from corenet.parallel.memory import Segment; s = Segment.create({'a': ((9,), 'f4')}); v = s['a'][1:]"
    process = subprocess.run([sys.executable, "-W", "error", "-X", "dev", "-c", code], capture_output=True)
    assert (process.returncode, process.stderr) == (0, b"")
