"""A worker is lost, at any moment and in any way: the run ends in the same bits, or says what became of it."""

import gc
import itertools
import os
import re
import signal
import subprocess
import time

import numpy as np
import pytest
from conftest import CLASSES, images
from faulty import Faulty
from test_processes import alive, small

import corenet
from corenet import nn, optim
from corenet.errors import ConfigError, LayerError, WorkerError
from corenet.parallel import crew
from corenet.parallel.barrier import PipeControl
from corenet.parallel.watch import Watch

pytestmark = [
    pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="finds processes in /proc"),
    pytest.mark.timeout(120),
]

KILLED = r"was killed by SIGKILL \(likely cause: out of memory, or somebody killed it\)"


def train(folder, fault: str = "none", *, times: int = 1, epochs: int = 2, step: int = 3, first: int = 0, **settings):
    """A trainer whose net was trained with that fault: 26 steps of 2 chunks each."""
    folder = folder / f"{fault} {len(os.listdir(folder))}"
    folder.mkdir()
    times = 0 if fault == "none" else times
    net = nn.Sequential(
        Faulty(fault, str(folder), times, step, first),
        nn.Conv2d(1, 4, 3),
        nn.BatchNorm2d(4, sync=True),
        nn.ReLU(),
        nn.Flatten(),
        nn.Dropout(0.2),
        nn.Linear(64, CLASSES),
    )
    made = {"workers": 2, "share_cores": True, "kernels": "numpy", "chunk": 4, **settings}
    optimizer = optim.SGD(0.1, momentum=0.9, clip_norm=1.0, ema=0.9)
    with corenet.Trainer(net, optimizer, **made) as trainer:
        trainer.fit(images(101), epochs=epochs, batch_size=8, callbacks=())
    assert len(os.listdir(folder)) == times
    return trainer


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    trainer = train(tmp_path_factory.mktemp("undisturbed"), workers=1)
    return trainer.params_sha256(), trainer.history["loss"], trainer.history["accuracy"]


def result(trainer):
    return trainer.params_sha256(), trainer.history["loss"], trainer.history["accuracy"]


@pytest.mark.parametrize(
    "fault, first, cause",
    [
        ("SIGKILL", 0, KILLED),
        ("SIGKILL", 4, KILLED),
        ("segfault", 4, r"was killed by SIGSEGV \(a defect in a kernel or a library\)"),
        ("SIGTERM", 0, "was killed by SIGTERM"),
        ("exit", 4, "ended with exit code 7"),
        ("memory", 0, "has no memory left"),
    ],
)
def test_a_lost_worker_leaves_no_trace_in_the_result(fault, first, cause, undisturbed, tmp_path, capfd):
    trainer = train(tmp_path, fault, first=first)
    assert result(trainer) == undisturbed
    (recovery,) = trainer.history.recoveries
    assert (recovery.worker, recovery.step, recovery.workers) == (first // 4, 3, 2)
    assert recovery.cores == trainer.layout.cpus[first // 4]
    core = ", ".join(map(str, recovery.cores))
    said = (
        rf"worker {first // 4} \(pid {recovery.pid}, core {core}\) {cause} at step 3: 2 in all went on after \d\.\d s"
    )
    assert re.fullmatch(said, str(recovery)), str(recovery)
    assert sum(record.samples for record in trainer.history.workers) == 202  # what was done again counts once
    assert capfd.readouterr() == ("", "")


def test_any_number_of_workers_and_steps_may_be_hit(undisturbed, tmp_path):
    assert result(train(tmp_path, "SIGKILL", times=3, workers=1)) == undisturbed
    assert result(train(tmp_path, "SIGKILL", step=0, workers=3)) == undisturbed
    assert result(train(tmp_path, "SIGKILL", step=12, workers=2)) == undisturbed  # the last of an epoch: 5 samples
    assert result(train(tmp_path, "SIGKILL", step=13, workers=2)) == undisturbed


@pytest.mark.parametrize("fault", ["SIGSTOP", "loop"])
def test_a_stuck_worker_is_lost_too(fault, undisturbed, tmp_path):
    trainer = train(tmp_path, fault, first=4, worker_timeout=1.5)
    assert result(trainer) == undisturbed
    (recovery,) = trainer.history.recoveries
    assert recovery.worker == 1 and recovery.cause == "made no progress for 1.5 s"
    assert not alive(recovery.pid)


def test_a_step_may_take_longer_than_a_worker_has_for_a_chunk():
    net = nn.Sequential(Faulty("slow", "", 0), nn.Flatten(), nn.Linear(36, CLASSES))
    with corenet.Trainer(net, workers=1, kernels="numpy", chunk=4, worker_timeout=1.0) as trainer:
        trainer.fit(images(16), batch_size=16, callbacks=())
        trainer.predict(images(128)[0])  # in chunks of its own
        assert trainer.history.recoveries == trainer._crew.recoveries == []


def test_who_was_killed_is_not_blamed_for_who_is_stuck_later(tmp_path):
    """Their counts of meetings begin anew with every job, or one would seem to be behind for ever."""
    for name in ("killed", "stuck"):
        (tmp_path / name).mkdir()
    killed = Faulty("SIGKILL", str(tmp_path / "killed"), step=3, first=4)
    stuck = Faulty("SIGSTOP", str(tmp_path / "stuck"), step=6, first=0)
    net = nn.Sequential(killed, stuck, nn.Flatten(), nn.Linear(36, CLASSES))
    with corenet.Trainer(net, workers=2, share_cores=True, kernels="numpy", chunk=4, worker_timeout=1.5) as trainer:
        trainer.fit(images(101), batch_size=8, callbacks=())
    assert [(recovery.worker, recovery.step) for recovery in trainer.history.recoveries] == [(1, 3), (0, 6)]


def test_fewer_workers_go_on_when_restarts_are_used_up(undisturbed, tmp_path):
    for first in (0, 4):
        trainer = train(tmp_path, "SIGKILL", first=first, max_restarts=0)
        assert result(trainer) == undisturbed
        assert [recovery.workers for recovery in trainer.history.recoveries] == [1]
        lost, left = trainer.history.workers[first // 4], trainer.history.workers[1 - first // 4]
        assert (lost.samples, left.samples) == (12, 190)  # 3 steps of 4 samples
    trainer = train(tmp_path, "SIGKILL", times=3, workers=3, max_restarts=1)
    assert result(trainer) == undisturbed
    assert [recovery.workers for recovery in trainer.history.recoveries] == [3, 2, 1]


def test_fewer_workers_go_on_when_none_can_start(undisturbed, tmp_path, monkeypatch):
    begun = []

    class Popen(subprocess.Popen):
        def __init__(self, *args, **kwargs):
            begun.append(self)
            if len(begun) > 2:
                raise OSError(11, "Resource temporarily unavailable")
            super().__init__(*args, **kwargs)

    monkeypatch.setattr(subprocess, "Popen", Popen)
    trainer = train(tmp_path, "SIGKILL")
    assert result(trainer) == undisturbed
    (recovery,) = trainer.history.recoveries
    assert recovery.workers == 1
    assert "cannot be replaced (worker 0 could not be started: got Resource temporarily" in recovery.cause


def test_when_nobody_is_left_the_error_says_what_and_where(tmp_path, capfd):
    with pytest.raises(WorkerError, match=rf"worker 0 \(pid \d+, core \d+\) {KILLED} at step 3\. The net is as it was"):
        train(tmp_path, "SIGKILL", times=2, workers=1, max_restarts=1)
    with pytest.raises(WorkerError, match=r"(?s)worker \d .* SIGSEGV .*Segmentation fault.*faulty.py.* in strike"):
        train(tmp_path, "segfault", times=2, first=4, workers=2, max_restarts=0)
    with pytest.raises(WorkerError, match=r"(?s)has no memory left at step 3.*Traceback.*not a byte more"):
        train(tmp_path, "memory", workers=1, max_restarts=0)
    assert capfd.readouterr().err == ""


def test_an_exception_in_the_users_code_is_not_tried_again(tmp_path):
    with pytest.raises(LayerError, match=r"(?s)Faulty.*ValueError.*of all things"):
        train(tmp_path, "raise")


def test_the_trainer_goes_on_from_the_last_complete_step(tmp_path):
    """With new workers, where nobody was left: what was learned is what an undisturbed run had then."""
    (tmp_path / "marks").mkdir()

    def make(times):
        net = nn.Sequential(Faulty("SIGKILL", str(tmp_path / "marks"), times, step=5), nn.Flatten(), nn.Linear(36, 4))
        settings = {"workers": 1, "kernels": "numpy", "max_restarts": 0, "chunk": 8}
        return corenet.Trainer(net, optim.SGD(0.1), **settings)

    x, y = images(101)
    with make(1) as trainer:
        with pytest.raises(WorkerError, match="at step 5"):
            trainer.fit((x, y), batch_size=8, callbacks=())
        learned = trainer.params_sha256()
        assert trainer.epochs_done == 0
        assert trainer.fit((x, y), batch_size=8, callbacks=())["epoch"] == [1]
    order = corenet.train.run.permutation(0, 0, 101)
    with make(0) as trainer:
        monkey = pytest.MonkeyPatch()
        monkey.setattr(corenet.train.run, "permutation", lambda *args: np.arange(40))
        trainer.fit((x[order[:40]], y[order[:40]]), batch_size=8, callbacks=())
        monkey.undo()
        assert trainer.params_sha256() == learned


@pytest.mark.parametrize("call", ["fit", "predict"])
def test_a_worker_lost_while_idle_is_replaced_at_the_next_call(call, capfd):
    x, y = images()
    results = []
    for kill in (False, True):
        with small() as trainer:
            trainer.fit((x, y), callbacks=())
            trainer.predict(x)
            process, other = trainer._crew.processes[1], trainer._crew.processes[0]
            if kill:
                process.kill()
                while alive(process.pid):
                    time.sleep(0.01)
            if call == "fit":
                trainer.fit((x, y), callbacks=())
                assert len(trainer.history.recoveries) == kill
            results.append((trainer.predict(x).tobytes(), trainer.params_sha256()))
            assert trainer._crew.processes[0] is other and (trainer._crew.processes[1] is process) == (not kill)
    assert results[0] == results[1]
    assert capfd.readouterr().err == ""


def test_while_it_starts_and_while_it_compiles(undisturbed, tmp_path, monkeypatch):
    """Killed as soon as there is a process, and at the first kernel."""
    begun = []
    real = crew.WorkerProcess

    def born(*args):
        member = real(*args)
        begun.append(member)
        if len(begun) in (1, 4):  # and the one after the next
            member.process.kill()
        return member

    monkeypatch.setattr(crew, "WorkerProcess", born)
    assert result(train(tmp_path, "SIGKILL", workers=2)) == undisturbed
    assert len(begun) == 5
    monkeypatch.undo()

    class Kill(corenet.train.Callback):
        def on_compile(self, done, total):
            if done == 1:
                trainer._crew.processes[0].kill()

    results = []
    for callbacks in ([], [Kill()]):
        with small(kernels="numba") as trainer:
            trainer.fit(images(), callbacks=callbacks)
            results.append(trainer.params_sha256())
            assert [recovery.step for recovery in trainer.history.recoveries] == [0] * len(callbacks)
    assert results[0] == results[1]


def test_callbacks_hear_of_it(tmp_path, capsys):
    heard = []

    class Hear(corenet.train.Callback):
        def on_recovery(self, recovery):
            heard.append(recovery)

    (tmp_path / "marks").mkdir()
    net = nn.Sequential(Faulty("SIGKILL", str(tmp_path / "marks")), nn.Flatten(), nn.Linear(36, CLASSES))
    with corenet.Trainer(net, workers=1, kernels="numpy") as trainer:
        history = trainer.fit(images(), callbacks=[Hear(), corenet.train.PrintEpochs()])
    assert heard == history.recoveries and len(heard) == 1
    assert str(heard[0]) in capsys.readouterr().out.splitlines()
    assert '"recoveries"' in history.to_json()


def test_with_pipes_for_a_barrier(undisturbed, tmp_path, monkeypatch):
    monkeypatch.setattr(crew, "create_barrier", lambda n, words, spins: PipeControl(n))
    gc.collect()  # what earlier tests have left in cycles
    open_files = len(os.listdir("/proc/self/fd"))
    for settings in ({}, {"max_restarts": 0}, {"workers": 3, "first": 4}):
        assert result(train(tmp_path, "SIGKILL", **settings)) == undisturbed
    assert len(os.listdir("/proc/self/fd")) == open_files


def test_ctrl_c_while_a_lost_worker_is_replaced(program):
    code = """
trainer = make()
fit(trainer)
class Kill(corenet.train.Callback):
    def on_progress(self, progress):
        if progress.step:
            os.kill(pids(trainer)[1], signal.SIGKILL)
            print("killed", flush=True)
            self.on_progress = lambda progress: None
try:
    trainer.fit((np.repeat(x, 500, 0), np.repeat(y, 500)), batch_size=1, callbacks=[Kill()])
except KeyboardInterrupt:
    print("interrupted", flush=True)
fit(trainer)
print("well")
trainer.close()
"""
    runs = [program(code) for _ in range(3)]
    for run, delay in zip(runs, (0.0, 0.2, 0.5), strict=True):
        assert run.line() == ["killed"]
        time.sleep(delay)
        run.process.send_signal(signal.SIGINT)
        assert run.succeed() == "interrupted\nwell\n"


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"max_restarts": -1}, "max_restarts: expected an integer of at least 0, got -1"),
        ({"max_restarts": 1.5}, "max_restarts: expected an integer of at least 0, got 1.5"),
        ({"worker_timeout": 0}, "worker_timeout: expected seconds, more than 0, got 0"),
        ({"worker_timeout": "1"}, "worker_timeout: expected seconds, more than 0, got '1'"),
        ({"worker_timeout": float("nan")}, "worker_timeout: expected seconds, more than 0, got nan"),
    ],
)
def test_settings_are_checked(settings, message):
    with pytest.raises(ConfigError) as caught:
        small(**settings)
    assert str(caught.value) == message


# Who is stuck.


def looks(watch: Watch, course, waiting_for=(0, 1)) -> list[list[int]]:
    """What the watch says of each look, a second apart."""
    return [watch.stuck(np.array(beats), waiting_for, 1.0) for beats in course]


def test_only_who_holds_the_others_up_is_stuck():
    behind = [[5, 3], [6, 4]]
    assert looks(Watch(2.5), [behind] * 4) == [[], [], [], [0]]
    assert looks(Watch(2.5), [[[5, 4], [6, 4]]] * 4) == [[], [], [], [0, 1]]  # both are, or the barrier would be open
    assert looks(Watch(2.5), [behind] * 4, waiting_for=[1]) == [[], [], [], [1]]  # the other has answered


def test_progress_of_any_kind_counts():
    chunks = [[[i, 3], [6, 4]] for i in range(9)]
    meetings = [[[5, i], [6, i + 1]] for i in range(9)]
    for course in (chunks, meetings):
        assert looks(Watch(2.5), course) == [[]] * 9


def test_a_parent_that_was_stopped_itself_blames_nobody(program):
    """Like Ctrl-Z: all of the group stand still for longer than the limit."""
    code = "trainer = make(worker_timeout=1.0); fit(trainer)\ntrain_for_ever()"
    run = program(code, group=True)
    word, *pids = run.line()
    assert word == "training"
    os.killpg(run.process.pid, signal.SIGSTOP)
    time.sleep(2.5)
    os.killpg(run.process.pid, signal.SIGCONT)
    time.sleep(1.5)
    assert all(alive(int(pid)) for pid in pids)
    run.process.send_signal(signal.SIGINT)
    assert run.end(10)[0] == -signal.SIGINT
    run.leave_nothing()


def test_killed_again_and_again_at_any_time():
    """From outside, whatever the worker is doing."""

    class Killer(corenet.train.Callback):
        last = 0

        def on_progress(self, progress):
            step = trainer._session.step
            if step > self.last + 4000:
                self.last = step
                trainer._crew.processes[next(ranks)].kill()

    ranks = itertools.cycle((0, 1, 0, 1, 1))
    x, y = images(101)
    many = np.tile(x, (250, 1, 1, 1)), np.tile(y, 250)
    results = []
    for callbacks in ([], [Killer()]):
        with small(max_restarts=100, kernels="numba") as trainer:
            trainer.fit(many, epochs=2, batch_size=2, callbacks=callbacks)
            results.append((trainer.params_sha256(), trainer.history["loss"]))
            assert len(trainer.history.recoveries) >= 2 * len(callbacks)
    assert results[0] == results[1]
