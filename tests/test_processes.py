"""Whole programs that train, and their ends: by themselves, by an exception, a signal, a worker or the parent killed.

Whatever happens, nothing is left: no process, no zombie, nothing in /dev/shm, no word on standard error that is not
Python's own traceback. Times are bounds of liveness, generous on purpose.
"""

import contextlib
import gc
import os
import re
import shutil
import signal
import time
from pathlib import Path

import numpy as np
import psutil
import pytest
from conftest import CLASSES, Program, images

import corenet
from corenet import nn, optim
from corenet.errors import WorkerError
from corenet.parallel import crew
from corenet.parallel.barrier import PipeControl
from corenet.parallel.process import environment
from corenet.parallel.topology import Layout

pytestmark = [
    pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="finds processes in /proc"),
    pytest.mark.timeout(120),
]


# Programs that end by themselves.


def test_close_del_and_exit_leave_nobody(program):
    code = """
import gc, psutil
me = psutil.Process()
with make() as trainer:
    assert len(me.children()) == 2
    fit(trainer)
assert me.children() == []
trainer.close()
trainer = make(workers=3)
fit(trainer)
assert len(me.children()) == 3
del trainer
assert me.children() == []  # at once, without the garbage collector
trainer = make()
trainer.predict(x)
trainer.close()
assert me.children() == []
never_used = make()
assert me.children() == []
left = make()
fit(left)  # and nobody closes it
print(*pids(left))
"""
    for flags in (["-W", "error"], ["-X", "dev", "-W", "error"]):
        run = program(code, flags=flags)
        pids = run.succeed().split()
        assert len(pids) == 2 and not any(psutil.pid_exists(int(pid)) for pid in pids)


@pytest.mark.parametrize("where", ["with", "without"])
def test_an_exception_is_shown_once_and_leaves_nobody(program, where):
    code = {
        "with": "with make() as trainer:\n    fit(trainer)\n    raise ValueError('mine')",
        "without": "trainer = make()\nfit(trainer)\ndef f(t): raise ValueError('mine')\nf(trainer)",
    }[where]
    run = program(code)
    status, out, err = run.end()
    assert status == 1 and err.count("Traceback") == 1 and err.endswith("ValueError: mine\n") and out == ""
    run.leave_nothing()


def test_a_callback_that_raises_leaves_the_trainer_usable(program):
    code = """
import psutil
class Boom(corenet.train.Callback):
    def on_progress(self, progress):
        raise ValueError(progress.step)
with make() as trainer:
    first = pids(trainer)
    try:
        trainer.fit((np.repeat(x, 500, 0), np.repeat(y, 500)), batch_size=1, callbacks=[Boom()])
    except ValueError as error:
        assert 0 < error.args[0] < 50500
    assert fit(trainer, epochs=2)["epoch"] == [1, 2]
    assert pids(trainer) == first
assert psutil.Process().children() == []
"""
    program(code).succeed()


def test_an_exception_when_some_have_answered_already(program):
    code = """
class Boom(corenet.train.Callback):
    def on_compile(self, done, total):
        if done == total:
            time.sleep(0.1)  # the others are done by now
            raise ValueError
for workers in (2, 3):
    with make(workers=workers) as trainer:
        try:
            fit(trainer, callbacks=[Boom()])
        except ValueError:
            first = pids(trainer)
        assert fit(trainer)["epoch"] == [1]
        assert pids(trainer) == first
"""
    program(code).succeed()


TRAIN = """
with make() as trainer:
    print(fit(trainer, epochs=2)["loss"][-1] > 0)
"""


@pytest.mark.parametrize(
    "how, flags",
    [
        ("file", ["-W", "error"]),
        ("stdin", ["-W", "error"]),
        ("-c", ["-W", "error"]),
        ("file", ["-I", "-W", "error"]),
        ("stdin", ["-X", "dev", "-W", "error"]),
        ("file", ["-O", "-B"]),
    ],
    ids=str,
)
def test_it_works_however_the_program_is_run(program, how, flags):
    env = {"PYTHONPATH": None} if "-I" in flags else {}  # that option ignores it: the installed package is used
    assert program(TRAIN, how=how, flags=flags, env=env).succeed() == "True\n"


def test_it_works_in_a_notebook_and_in_threads(program):
    """Interactive code has no file; a thread may start the workers, and be gone when they are used."""
    code = """
import code as interactive
console = interactive.InteractiveInterpreter(globals())
console.runsource("trainer = make()")
console.runsource("print(fit(trainer)['epoch'])")
del sys.modules["__main__"].__file__
console.runsource("trainer.close(); history = fit(trainer); trainer.close(); del trainer")
exec(compile("t = make(); fit(t); t.close()", "<cell>", "exec"))

def run(kept):
    kept.append(make(workers=1))
    fit(kept[0])

kept, threads = [], [threading.Thread(target=run, args=([],)) for _ in range(2)]
threads.append(threading.Thread(target=run, args=(kept,)))
for thread in threads: thread.start()
for thread in threads: thread.join()
fit(kept[0])
print(len(threading.enumerate()))
"""
    assert program(code).succeed() == "[1]\n1\n"


# The user's folder and settings.


@pytest.mark.parametrize(
    "how, flags, kernels",
    [("file", [], "numba"), ("-c", [], "numpy"), ("stdin", [], "numpy"), ("file", ["-I"], "numpy")],
)
def test_files_beside_the_program_are_not_imported_by_workers(program, tmp_path, how, flags, kernels):
    # Names that the parent does not import itself, so that it runs; each would be run by every worker.
    for name in ("numba", "threadpoolctl", "llvmlite", "queue"):
        (tmp_path / f"{name}.py").write_text(f"import sys; sys.exit('{name}.py was run')")
    code = f"with make(kernels='{kernels}') as trainer: print(fit(trainer)['epoch'])"
    run = program(code, how=how, flags=["-W", "error", *flags], env={"PYTHONPATH": None} if flags else {})
    assert run.succeed() == "[1]\n"


def test_names_of_the_standard_library_in_another_folder(program, tmp_path):
    # The program's own folder is elsewhere: here the current folder alone has the names, even of what everybody needs.
    here = tmp_path / "here"
    here.mkdir()
    for name in (
        "numpy",
        "socket",
        "signal",
        "json",
        "queue",
        "struct",
        "typing",
        "corenet",
        "cffi",
        "psutil",
        "random",
    ):
        (here / f"{name}.py").write_text(f"raise SystemExit('{name}.py was run')")
    code = f"import os; os.chdir({str(here)!r})\n" + TRAIN
    assert program(code).succeed() == "True\n"
    # With -c the current folder is on the path, as "": what the parent has imported by then is what workers import.
    assert program(code, how="-c").succeed() == "True\n"


def test_the_very_package_of_the_parent_is_used(program, tmp_path):
    """Workers import the corenet that their parent runs, not one that comes first on the path by now."""
    other = tmp_path / "other" / "corenet"
    other.mkdir(parents=True)
    (other / "__init__.py").write_text("raise SystemExit('another corenet was run')")
    code = f"sys.path.insert(0, {str(other.parent)!r})\n" + TRAIN
    assert program(code).succeed() == "True\n"


def test_isolated_parents_have_isolated_workers(program, tmp_path):
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text("import os; os.write(1, b'customized')")
    env = {"PYTHONPATH": str(site)}
    assert program(TRAIN, flags=["-I", "-W", "error"], env=env).succeed() == "True\n"


def test_the_folder_may_vanish(program, tmp_path):
    folder = tmp_path / "gone"
    folder.mkdir()
    code = f"os.chdir({str(folder)!r}); os.rmdir({str(folder)!r})\n" + TRAIN
    assert program(code).succeed() == "True\n"


@pytest.mark.parametrize(
    "kernels, env",
    [
        ("numba", {"OMP_NUM_THREADS": "7", "NUMBA_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "3"}),
        ("numba", {"NUMBA_NUM_THREADS": "64", "NUMBA_THREADING_LAYER": "workqueue"}),
        ("numpy", {"PYTHONWARNINGS": "error", "PYTHONDEVMODE": "1"}),
        ("numpy", {"PYTHONOPTIMIZE": "2", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONUNBUFFERED": "1"}),
    ],
    ids=str,
)
def test_settings_of_the_user_do_not_matter(program, kernels, env):
    code = f"""
before = dict(os.environ)
with make(kernels="{kernels}", threads=2) as trainer:
    fit(trainer)
    print(trainer.params_sha256())
assert dict(os.environ) == before
"""
    other = f"with make(kernels='{kernels}') as trainer: fit(trainer); print(trainer.params_sha256())"
    clean = dict.fromkeys(env)
    assert program(code, env=env).succeed() == program(other, env=clean).succeed()


def test_threads_that_share_a_core_do_not_spin(monkeypatch):
    def policy(shared: bool) -> str | None:
        return environment(Layout(2, 2, ((0, 1), (0, 1)), "", shared)).get("OMP_WAIT_POLICY")

    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    assert (policy(True), policy(False)) == ("passive", None)
    monkeypatch.setenv("OMP_WAIT_POLICY", "active")
    assert (policy(True), policy(False)) == ("active", "active")  # who says so knows why


def test_after_parallel_kernels_and_large_products(program):
    code = """
import numba

@numba.njit(parallel=True)
def total(values):
    result = 0.0
    for i in numba.prange(len(values)):
        result += values[i]
    return result

a = np.ones((600, 600))
assert (a @ a)[0, 0] == 600 and total(a.ravel()) == 360000
with make(kernels="numba") as trainer:
    fit(trainer)
    assert (a @ a)[0, 0] == 600 and total(a.ravel()) == 360000
    fit(trainer)
"""
    program(code).succeed()


# The compile cache. The net has one dense layer, so that little is compiled, and others begin with a copy.

COMPILE = """
with make(kernels="numba", workers=1) as trainer:
    print(fit(trainer)["loss"], trainer.params_sha256())
"""


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    """A cache that two programs filled at the same time, and what they printed."""
    folder = tmp_path_factory.mktemp("filled")
    env = {"XDG_CACHE_HOME": str(folder / "cache")}
    runs = [Program(COMPILE, folder=folder, env=env) for _ in range(2)]
    try:
        return folder / "cache" / "corenet", {run.succeed() for run in runs}
    finally:
        for run in runs:
            run.kill()


def entries(folder: Path) -> dict[Path, bytes]:
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*.nb?")}


def test_two_programs_may_fill_the_cache_at_once(program, filled):
    folder, printed = filled
    before = entries(folder)
    assert len(printed) == 1 and len(before) > 10
    # A third finds it complete and whole: nothing is compiled again.
    assert {program(COMPILE, env={"XDG_CACHE_HOME": str(folder.parent)}).succeed()} == printed
    assert entries(folder) == before


def test_the_cache_may_be_deleted_while_workers_run(program, filled, tmp_path):
    cache = tmp_path / "cache"
    shutil.copytree(filled[0], cache / "corenet")
    code = f"""
import shutil
with make(kernels="numba") as trainer:
    fit(trainer)
    shutil.rmtree({str(cache)!r})
    trainer.fit((x.astype(np.float32), y), callbacks=())  # needs a kernel more
    print(fit(trainer)["epoch"])
"""
    assert program(code, env={"XDG_CACHE_HOME": str(cache)}).succeed() == "[3]\n"
    assert len(entries(cache)) == 2  # of that kernel


@pytest.mark.parametrize("home", ["/proc/no/home", "/dev/null", "/proc", None], ids=str)
def test_without_a_home_the_cache_is_temporary(program, filled, tmp_path, home):
    """A home that is missing, no folder, read-only even for root; none, and a cache that cannot be either."""
    (cache,) = filled[0].iterdir()
    temporary = tmp_path / "temporary" / f"corenet-{os.getuid()}-{cache.name}"
    shutil.copytree(cache, temporary)
    temporary.chmod(0o700)
    before = entries(temporary)
    env = {"HOME": home, "XDG_CACHE_HOME": None if home else "/dev/null/cache", "TMPDIR": str(temporary.parent)}
    assert {program(COMPILE, env=env).succeed()} == filled[1]
    assert entries(temporary) == before  # it was used
    shutil.rmtree(temporary)
    code = "from corenet.kernels.numba_backend import cache_folder; print(cache_folder())"
    assert program(code, env=env, prelude="").succeed() == f"{temporary}\n"
    assert oct(temporary.stat().st_mode & 0o777) == "0o700"


# Ctrl-C, SIGTERM, SIGKILL.

FOR_EVER = "trainer = make(); train_for_ever()"


def training(program, code: str = FOR_EVER, **settings):
    """A program in the middle of an epoch, and the pids of its workers."""
    run = program(code, **{"group": True, **settings})
    word, *pids = run.line()
    assert word == "training"
    return run, [int(pid) for pid in pids]


def assert_one_interrupt(err: str) -> None:
    """Ctrl-C is the last word and the only one (Python prints two tracebacks where it falls into an except block)."""
    assert len(re.findall("^KeyboardInterrupt", err, re.MULTILINE)) == 1, err
    assert err.rstrip().endswith("KeyboardInterrupt") and "Warning" not in err and "Exception ignored" not in err, err


@pytest.mark.parametrize("whom", ["parent", "group"])
def test_ctrl_c_ends_all_with_one_traceback(program, whom):
    run, _ = training(program)
    (os.kill if whom == "parent" else os.killpg)(run.process.pid, signal.SIGINT)
    status, _, err = run.end(10)
    assert status == -signal.SIGINT  # which a shell shows as 130
    assert_one_interrupt(err)
    run.leave_nothing()


@pytest.mark.parametrize("whom", ["parent", "group"])
def test_after_ctrl_c_the_trainer_goes_on_from_the_last_step(program, whom):
    code = """
trainer = make()
try:
    train_for_ever()
except KeyboardInterrupt:
    pass
first = pids(trainer)
learned, step = trainer.params_sha256(), trainer._session.step
assert step > 0 and trainer.epochs_done == 0
trainer.predict(x)
assert trainer.params_sha256() == learned
fit(trainer)
assert trainer._session.step == step + 7 and trainer.params_sha256() != learned
assert pids(trainer) == first  # they were called off, not ended
print("well")
trainer.close()
"""
    run, _ = training(program, code)
    (os.kill if whom == "parent" else os.killpg)(run.process.pid, signal.SIGINT)
    assert run.succeed() == "well\n"


def test_ctrl_c_at_any_time_while_workers_start(program):
    code = """
print("now", flush=True)
try:
    with make(workers=3) as trainer:
        fit(trainer)
        time.sleep(60)
finally:
    import psutil
    assert psutil.Process().children() == []
"""
    runs = [program(code) for _ in range(6)]
    for run, delay in zip(runs, (0, 0.01, 0.02, 0.05, 0.1, 0.3), strict=True):
        assert run.line() == ["now"]
        time.sleep(delay)
        run.process.send_signal(signal.SIGINT)
    for run in runs:
        status, _, err = run.end(20)
        assert status == -signal.SIGINT
        assert_one_interrupt(err)
        run.leave_nothing()


def test_ctrl_c_while_compiling(program, filled, tmp_path):
    cache = tmp_path / "cache"
    shutil.copytree(filled[0], cache / "corenet")
    missing = [path for path in cache.rglob("*.nbi") if path.name.startswith("linear")]
    assert len(missing) >= 3
    for path in missing:
        path.unlink()
    code = """
class Compiling(corenet.train.Callback):
    def on_compile(self, done, total):
        print("compiling", done, flush=True)
trainer = make(kernels="numba")
try:
    fit(trainer, callbacks=[Compiling()])
except KeyboardInterrupt:
    print("stopped", flush=True)
assert fit(trainer, callbacks=[Compiling()])["epoch"] == [1]  # with what is compiled by now, and perhaps new workers
print("trained")
"""
    run = program(code, env={"XDG_CACHE_HOME": str(cache)})
    assert run.line()[0] == "compiling"
    begin = time.monotonic()
    run.process.send_signal(signal.SIGINT)
    while (word := run.line()[0]) != "stopped":
        assert word == "compiling"
    assert time.monotonic() - begin < 5
    assert run.succeed().endswith("trained\n")


def test_a_second_ctrl_c_while_the_first_is_obeyed(program):
    """A stopped worker cannot answer, so the parent waits for it: not for ever, and not if the user has enough."""
    run, pids = training(program)
    os.kill(pids[0], signal.SIGSTOP)
    run.process.send_signal(signal.SIGINT)
    time.sleep(0.3)
    run.process.send_signal(signal.SIGINT)
    status, _, err = run.end(10)
    assert status == -signal.SIGINT and err.rstrip().endswith("KeyboardInterrupt")
    assert "ResourceWarning" not in err
    run.leave_nothing()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGHUP])
@pytest.mark.parametrize("whom", ["parent", "group"])
def test_a_killed_parent_takes_its_workers_along(program, number, whom):
    run, _ = training(program)
    (os.kill if whom == "parent" else os.killpg)(run.process.pid, number)
    status, _, err = run.end(10)
    assert (status, err) == (-number, "")
    run.leave_nothing()


def test_workers_idle_or_compiling_see_the_parent_die(program, tmp_path):
    idle = program("trainer = make(); fit(trainer); print('idle', flush=True); time.sleep(60)")
    code = """
class Tell(corenet.train.Callback):
    def on_compile(self, done, total):
        print("compiling", flush=True)
trainer = make(kernels="numba")
fit(trainer, callbacks=[Tell()])
"""
    compiling = program(code, env={"XDG_CACHE_HOME": str(tmp_path / "cache")})
    starting = program("trainer = make(kernels='numba').__enter__(); print('starting', flush=True); time.sleep(60)")
    for run in (starting, idle, compiling):
        assert run.line()
        run.process.kill()
    for run in (starting, idle, compiling):
        status, _, err = run.end(10)
        assert (status, err) == (-signal.SIGKILL, "")
        run.leave_nothing()


def test_a_fork_of_the_parent_neither_stops_the_run_nor_keeps_workers_alive(program):
    code = """
trainer = make()
fit(trainer)
for end in (sys.exit, os._exit):
    child = os.fork()
    if child == 0:
        end(0)  # sys.exit runs what the parent has registered for its exit
    os.waitpid(child, 0)
    history = fit(trainer, epochs=2)
    assert min(history["accuracy"]) > 0 and sum(worker.samples for worker in history.workers) == 202
child = os.fork()  # lives on, with copies of all descriptors
if child == 0:
    for fd in (0, 1, 2):
        os.close(fd)
    del os.environ["CORENET_TEST_MARK"]
    time.sleep(60)
    os._exit(0)
print(child, *pids(trainer), flush=True)
second = make()
fit(second)
processes = [*second._crew.processes, *trainer._crew.processes]
second.close()
trainer.close()
assert [process.returncode for process in processes] == [1] * 4  # they went by themselves: nobody had to be killed
trainer = make()
fit(trainer)
child = os.fork()
if child == 0:
    for fd in (0, 1, 2):
        os.close(fd)
    time.sleep(60)
    os._exit(0)
print(child, *pids(trainer), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    run = program(code, flags=[])  # a copy of a Popen whose process is not its own to wait for is Python's to warn of
    forks, workers = [], []
    for _ in range(2):
        fork, *pids = map(int, run.line())
        forks.append(fork)
        workers += pids
    status, _, err = run.end(10)
    try:
        assert (status, err) == (-signal.SIGKILL, "")
        end = time.monotonic() + 5
        while any(alive(pid) for pid in workers) and time.monotonic() < end:
            time.sleep(0.02)
        assert [pid for pid in workers if alive(pid)] == []
    finally:
        for fork in forks:
            with contextlib.suppress(ProcessLookupError):
                os.kill(fork, signal.SIGKILL)


def alive(pid: int) -> bool:
    with contextlib.suppress(psutil.Error):
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    return False


# A worker does what it should not; those that are lost: test_recovery.py.


def small(**settings) -> corenet.Trainer:
    net = nn.Sequential(nn.Flatten(), nn.Linear(36, CLASSES))
    return corenet.Trainer(net, optim.SGD(0.1), **{"workers": 2, "share_cores": True, "kernels": "numpy", **settings})


def test_workers_that_somebody_else_called_off_did_not_finish():
    class Abort(corenet.train.Callback):
        def on_progress(self, progress):
            trainer._crew.barrier.abort()

    x, y = images(100)
    with small() as trainer:
        with pytest.raises(WorkerError, match=r"worker \d .* was called off, but not by this process"):
            trainer.fit((np.tile(x, (1000, 1, 1, 1)), np.tile(y, 1000)), batch_size=1, callbacks=[Abort()])
        assert trainer.epochs_done == 0
        trainer.fit((x, y), callbacks=())


def test_a_worker_that_raises_shows_its_own_traceback(program):
    code = """
with make() as trainer:
    fit(trainer)
    trainer._session._model["scaling"] = 3  # something the parent did not check
    trainer._session._prepared.clear()
    try:
        fit(trainer)
    except corenet.CorenetError as error:
        assert type(error).__name__ == "WorkerError"
        lines = str(error).splitlines()
        assert lines[0] in ("worker 0 raised TypeError", "worker 1 raised TypeError"), lines
        assert any("do_prepare_training" in line for line in lines) and "int" in lines[-1], lines
    trainer.fit((x, y), callbacks=())
"""
    program(code).succeed()


def test_a_setting_that_only_a_worker_can_judge_is_an_error_like_any_other(program):
    """Not a worker's failure with a traceback of corenet: there is nothing in it for the user."""
    code = """
with make() as trainer:
    fit(trainer)
    trainer._session._model["net"] = {"type": "Nonsense"}
    trainer._session._prepared.clear()
    try:
        fit(trainer)
    except corenet.CorenetError as error:
        assert type(error).__name__ == "ConfigError"
        assert str(error).startswith("net description: expected") and "Traceback" not in str(error), error
    trainer.fit((x, y), callbacks=())
"""
    program(code).succeed()


def test_a_worker_that_cannot_start_is_named(program):
    code = """
from corenet.parallel import process
process._BOOTSTRAP = "raise SystemExit(3)"
try:
    fit(make())
except corenet.CorenetError as error:
    print(type(error).__name__, error)
import psutil
assert psutil.Process().children() == []
"""
    out = program(code).succeed()
    assert re.match(r"WorkerError worker \d \(pid \d+, core \d+\) ended with exit code 3 ", out)


def test_a_stopped_worker_holds_the_run_up_until_it_goes_on(program):
    code = "trainer = make(); fit(trainer)\n" + FOR_EVER
    run, pids = training(program, code)
    os.kill(pids[1], signal.SIGSTOP)
    time.sleep(0.3)
    assert run.process.poll() is None
    os.kill(pids[1], signal.SIGCONT)
    run.process.send_signal(signal.SIGINT)
    status, _, err = run.end(10)
    assert status == -signal.SIGINT
    assert_one_interrupt(err)
    run.leave_nothing()


# Without the C library workers meet through pipes.


@pytest.fixture
def pipes(monkeypatch):
    monkeypatch.setattr(crew, "create_barrier", lambda n, words, spins: PipeControl(n))


def test_pipes_give_the_same_bits_and_can_be_called_off(pipes, trainer):
    x, y = images()
    expected = trainer(nn.Sequential(nn.Flatten(), nn.Linear(36, CLASSES)), optim.SGD(0.1), kernels="numpy")
    expected.fit((x, y), epochs=2, batch_size=16, callbacks=())

    class Stop(corenet.train.Callback):
        def on_progress(self, progress):
            raise KeyboardInterrupt

    gc.collect()  # what earlier tests have left in cycles
    before = len(os.listdir("/proc/self/fd"))
    for workers in (2, 3):
        with small(workers=workers) as made:
            assert made._crew.barrier.spec["kind"] == "pipe"
            made.fit((x, y), epochs=2, batch_size=16, callbacks=())
            assert made.params_sha256() == expected.params_sha256()
            pids = [process.pid for process in made._crew.processes]
            for _ in range(3):
                with pytest.raises(KeyboardInterrupt):
                    made.fit((np.tile(x, (900, 1, 1, 1)), np.tile(y, 900)), batch_size=1, callbacks=[Stop()])
                assert made.fit((x, y), batch_size=16, callbacks=()).workers[1].samples > 0
            assert [process.pid for process in made._crew.processes] == pids
    assert len(os.listdir("/proc/self/fd")) == before


def test_no_descriptor_is_left_open():
    x, y = images(30)
    counts = []
    for _ in range(2):
        with small() as trainer:
            trainer.fit((x, y), validation=(x, y), callbacks=())
            worker = trainer._crew.processes[0].pid
            inside = len(os.listdir(f"/proc/{worker}/fd"))
            for size in range(1, 31):
                trainer.predict(x[:size])
            # Two data sets and one output at most, each with a descriptor of its own and one of its mapping.
            assert len(os.listdir(f"/proc/{worker}/fd")) <= inside + 6
        counts.append(len(os.listdir("/proc/self/fd")))
    assert counts[0] == counts[1]
