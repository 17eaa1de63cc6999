"""The channel: whole messages, whatever their size; descriptors that work on the other side; an end that is noticed."""

import json
import math
import os
import resource
import select
import signal
import subprocess
import sys
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corenet.errors import ConfigError, WorkerError
from corenet.parallel.channel import HEADER, MAX_FDS, Channel

ECHO = """
import os, sys
from corenet.parallel.channel import Channel
with Channel(int(sys.argv[1])) as channel:
    while True:
        try:
            message, fds = channel.receive()
        except EOFError:
            break
        message["read"] = [os.pread(fd, 100, 0).decode() for fd in fds]
        message["inheritable"] = [os.get_inheritable(fd) for fd in fds]
        channel.send(message, fds)
        for fd in fds:
            os.close(fd)
"""


@pytest.fixture
def pair():
    ours, theirs = Channel.pair()
    with ours, theirs:
        yield ours, theirs


def open_fds() -> int:
    return len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(st.dictionaries(st.text(), values))
def test_what_json_can_say_arrives_unchanged(message):
    ours, theirs = Channel.pair()
    with ours, theirs:
        ours.send(message)
        assert theirs.receive() == (message, [])


def test_nan_and_infinity_survive(pair):
    pair[0].send({"loss": math.nan, "worst": math.inf})
    message, _ = pair[1].receive()
    assert math.isnan(message["loss"]) and message["worst"] == math.inf


def test_messages_keep_their_order_and_their_descriptors(pair):
    read, write = os.pipe()
    for i in range(20):
        pair[0].send({"i": i}, [read] * (i % 3))
    for i in range(20):
        message, fds = pair[1].receive()
        assert (message["i"], len(fds)) == (i, i % 3)
        for fd in fds:
            os.close(fd)
    os.close(read)
    os.close(write)


def test_large_messages_arrive_whole(pair):
    message = {"text": "ä" * 4_000_000}
    sender = threading.Thread(target=pair[0].send, args=(message,))
    sender.start()
    assert pair[1].receive() == (message, [])
    sender.join()


def test_a_message_that_dribbles_in(pair):
    body = json.dumps({"a": 1}).encode()
    data = HEADER.pack(len(body), 0) + body

    def dribble():
        for i in range(len(data)):
            os.write(pair[0].fileno(), data[i : i + 1])

    sender = threading.Thread(target=dribble)
    sender.start()
    assert pair[1].receive() == ({"a": 1}, [])
    sender.join()


def test_another_process_answers_and_uses_the_descriptors(tmp_path):
    before = open_fds()
    ours, theirs = Channel.pair()
    command = [sys.executable, "-W", "error", "-c", ECHO, str(theirs.fileno())]
    process = subprocess.Popen(command, pass_fds=[theirs.fileno()])
    theirs.close()
    files = []
    for i in range(64):
        (tmp_path / str(i)).write_text(f"file {i}")
        files.append(os.open(tmp_path / str(i), os.O_RDONLY))
    for count in (0, 1, 64):
        ours.send({"text": "x" * 100_000}, files[:count])
        message, fds = ours.receive()
        assert message["read"] == [f"file {i}" for i in range(count)]
        assert message["inheritable"] == [False] * count
        assert [os.pread(fd, 100, 0).decode() for fd in fds] == message["read"]
        assert not any(os.get_inheritable(fd) for fd in fds)
        for fd in fds:
            os.close(fd)
    ours.close()
    assert process.wait(30) == 0
    for fd in files:
        os.close(fd)
    assert open_fds() == before


def test_the_end_of_the_other_side_is_an_end_of_file(pair):
    ours, theirs = pair
    theirs.send({"last": 1})
    theirs.close()
    assert ours.receive() == ({"last": 1}, [])  # what was sent before still arrives
    for _ in range(2):
        with pytest.raises(EOFError):
            ours.receive()
        with pytest.raises(EOFError):
            ours.send({})


def test_an_unread_message_does_not_hide_the_end(pair):
    ours, theirs = pair
    ours.send({"never": "read"})
    theirs.close()  # the kernel reports a reset connection rather than an end
    with pytest.raises(EOFError):
        ours.receive()


@pytest.mark.parametrize("sent", [5, HEADER.size, HEADER.size + 3])
def test_an_end_in_the_middle_of_a_message(pair, sent):
    os.write(pair[0].fileno(), (HEADER.pack(10, 0) + b'{"a": 1}..')[:sent])
    pair[0].close()
    with pytest.raises(EOFError):
        pair[1].receive()


def test_a_killed_process_is_noticed_by_who_waits_for_the_descriptor():
    ours, theirs = Channel.pair()
    command = [sys.executable, "-c", ECHO, str(theirs.fileno())]
    process = subprocess.Popen(command, pass_fds=[theirs.fileno()])
    theirs.close()
    process.send_signal(signal.SIGKILL)
    assert select.select([ours.fileno()], [], [], 30)[0]
    with pytest.raises(EOFError):
        ours.receive()
    process.wait()
    ours.close()


def test_what_json_cannot_say_is_refused_before_anything_is_sent(pair):
    with pytest.raises(TypeError):
        pair[0].send({"array": object()})
    pair[0].send({"still": "in step"})
    assert pair[1].receive() == ({"still": "in step"}, [])


def test_too_many_descriptors_are_refused(pair):
    with pytest.raises(ConfigError, match="file descriptors"):
        pair[0].send({}, [0] * (MAX_FDS + 1))


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="counts descriptors through /proc")
def test_no_room_for_descriptors_says_so_and_loses_none(pair):
    read, write = os.pipe()
    pair[0].send({}, [read] * 20)
    highest = max(int(fd) for fd in os.listdir("/proc/self/fd"))
    fillers = [os.dup(read)]
    while fillers[-1] <= highest:  # no gaps below, so the limit is the room that is left
        fillers.append(os.dup(read))
    before = open_fds()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (fillers[-1] + 6, hard))
    try:
        with pytest.raises(WorkerError, match=r"expected 20 file descriptors, got 5\. .*ulimit"):
            pair[1].receive()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert open_fds() == before
    for fd in [read, write, *fillers]:
        os.close(fd)
