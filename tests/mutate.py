"""Does the suite notice when a kernel is wrong? Each mutant of `mutants.py`, and the first test that fails with it.

    python tests/mutate.py [module ...] [--every] [--jobs 2] [--write docs/mutations.md]

Nothing on disk is changed: pytest collects the tests once, and each mutant is a fork of that process in which one
function is given its changed code. There the tests of the operations it belongs to run first, then all others that
need no further process; the first failure, a crash or a test that takes too long ends the fork. A nest that was changed
is run as plain Python, and if that notices nothing it is compiled anew, beside the cache.
"""

import argparse
import importlib
import inspect
import json
import os
import re
import resource
import signal
import sys
import tempfile
import traceback
import types
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from mutants import Mutant, modules, mutants  # noqa: E402
from mutants_page import EXPLAINED, key, page  # noqa: E402
from test_kernels import CASES, arguments  # noqa: E402

from corenet.kernels import numba_backend  # noqa: E402
from corenet.kernels.operation import Operation  # noqa: E402
from corenet.kernels.patch import Patch  # noqa: E402
from corenet.kernels.row_pass import RowPass  # noqa: E402

FILES = [
    "kernels", "shared_definitions", "conv_grid", "winograd", "exponential", "random", "meetings", "losses",
    "layerwise", "optim", "optim_more", "optim_options", "layers", "torch_layers", "torch", "gradients",
]  # fmt: skip
SECONDS = 120  # of one test, compiling included
MEMORY = 16 << 30
OPERATIONS = {id(case.operation): case.operation for case in CASES}.values()


def used_by(function: types.FunctionType) -> set[types.FunctionType]:
    """The kernel functions that a function calls, directly or through others, and itself."""
    found, open_ends = {function}, [function]
    while open_ends:
        here = open_ends.pop()
        codes, names = [here.__code__], set()
        while codes:
            code = codes.pop()
            names |= set(code.co_names)
            codes += [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]
        values = [here.__globals__.get(name) for name in names]
        values += [getattr(m, name, None) for m in values if isinstance(m, types.ModuleType) for name in names]
        values += [part for patch in values if isinstance(patch, Patch) for part in (patch.line, Patch.__call__)]
        values += [RowPass.__call__ for rows in values if isinstance(rows, RowPass)]
        for value in values:
            called = function_of(value)
            if called and called.__module__.startswith("corenet.kernels.") and called not in found:
                found.add(called)
                open_ends.append(called)
    return found


def function_of(value: object) -> types.FunctionType | None:
    """The Python function in an operation, in a pass over rows, or in a wrapper."""
    value = value.reference if isinstance(value, Operation) else value.terms if isinstance(value, RowPass) else value
    value = inspect.unwrap(value) if callable(value) else value
    return value if isinstance(value, types.FunctionType) else None


def target(mutant: Mutant) -> types.FunctionType:
    """The function that a mutant changes."""
    function = function_of(getattr(importlib.import_module(f"corenet.kernels.{mutant.module}"), mutant.function))
    assert function is not None
    return function


def operations_of(function: types.FunctionType) -> set[Operation]:
    """Those whose definition or nest uses a function."""
    return {o for o in OPERATIONS if function in used_by(o.reference) | used_by(function_of(o.loops))}


def written_arrays(module: str) -> dict[str, dict[str, str]]:
    """The arrays that definitions and nests write, and what to add to an element of each."""
    found: dict[str, dict[str, str]] = {}
    for case in CASES:
        name, _, function = case.operation.name.partition(".")
        if name == module:
            parameters = list(inspect.signature(case.operation.reference).parameters)
            arrays = {parameters[i]: "0.01" if case.args[i].dtype.kind == "f" else "1"
                      for i in (*case.outputs, *case.updated)}  # fmt: skip
            found[function] = found[case.operation.loops.__name__] = arrays
    return found


def all_mutants(some: list[str], every: bool = False) -> list[Mutant]:
    """Those of some modules, or of all."""
    return [mutant for module in some or modules() for mutant in mutants(module, written_arrays(module), every)]


def change(mutant: Mutant, folder: str) -> None:
    """Give the function its changed code, here and for the compiler, whose results go into a folder of their own."""
    function = target(mutant)
    code = compile(mutant.source(), function.__code__.co_filename, "exec")
    function.__code__ = next(c for c in code.co_consts if getattr(c, "co_name", None) == mutant.function)
    everything, nothing_new = (
        mutant.function in ("make_tile", "make_patch", "make_row_pass", "rows_for"),
        numba_backend._dispatcher,
    )
    fresh = {o for o in OPERATIONS if everything or function in used_by(function_of(o.loops))}
    anew = numba_backend.cache(numba_backend._dispatcher.__wrapped__)
    made = numba_backend._device, numba_backend._tile, numba_backend._patch, numba_backend._row_pass
    for cached in (*made, numba_backend.tile_rows):
        cached.cache_clear()

    def dispatcher(operation, parallel, c_tile):
        if operation not in fresh:
            return nothing_new(operation, parallel, c_tile)
        numba_backend.cache_folder = lambda: folder
        return anew(operation, parallel, c_tile)

    numba_backend._dispatcher = dispatcher


class Mutations:
    """The pytest plugin that runs the tests it has collected once for each mutant."""

    def __init__(self, of: list[Mutant], jobs: int, results: Path):
        self.of, self.jobs, self.results = of, jobs, results
        self.failed = ""
        self.sound: set[str] = set()  # tests that are known to pass when nothing is changed

    def pytest_runtest_logreport(self, report):
        if report.failed and not self.failed:
            self.failed = report.nodeid

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session):
        touched = set().union(*(operations_of(target(mutant)) for mutant in self.of))
        for case in CASES:  # loaded here, once for all forks; only serial code, since threads do not survive a fork
            if case.operation in touched:
                numba_backend.compile_for(case.operation, tuple(arguments(case, "float32")), parallel=False)
        parts = []
        for job in range(self.jobs):
            pid = os.fork()
            if pid == 0:
                try:
                    self.work(session.items, self.of[job :: self.jobs])
                    os._exit(0)
                except BaseException:
                    traceback.print_exc()
                finally:
                    os._exit(1)
            parts.append(pid)
        for pid in parts:
            if os.waitpid(pid, 0)[1] != 0:
                raise RuntimeError("a part of the run has ended with an error")
        return True

    def work(self, items: list[pytest.Item], of: list[Mutant]) -> None:
        """One of the processes that share the mutants among them."""
        for mutant in of:
            noticed = self.noticed_by(items, mutant)
            print(mutant, "–", noticed or "NOT NOTICED", file=sys.stderr, flush=True)
            with self.results.open("a") as file:
                file.write(json.dumps([str(mutant), noticed]) + "\n")

    def noticed_by(self, items: list[pytest.Item], mutant: Mutant) -> str:
        """The first test that fails with a mutant, and does not without it; "" if there is none."""
        mine = tests_for(items, mutant)
        failed, how = self.fork(mine, mutant)
        if failed and failed not in self.sound:
            if self.fork([item for item in mine if item.nodeid == failed], None)[0]:
                raise RuntimeError(f"{failed} fails without any change")
            self.sound.add(failed)
        return f"{failed}{how}"

    def fork(self, items: list[pytest.Item], mutant: Mutant | None) -> tuple[str, str]:
        """Run tests in a fork until one fails: that one, and how, if the fork did not live to say so."""
        reading, writing = os.pipe()
        with tempfile.TemporaryDirectory() as folder:
            pid = os.fork()
            if pid == 0:
                try:
                    self.child(items, mutant, folder, writing)
                finally:
                    os._exit(1)
            os.close(writing)
            with os.fdopen(reading) as pipe:
                said = pipe.read().splitlines()
            status = os.waitpid(pid, 0)[1]
        if os.WIFEXITED(status):
            if status != 0:
                raise RuntimeError(f"the fork for {mutant} has ended with an error")
            return said[-1], ""
        return said[-1], f" ({signal.Signals(os.WTERMSIG(status)).name})"

    def child(self, items: list[pytest.Item], mutant: Mutant | None, folder: str, writing: int) -> None:
        silence = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silence, 1)
        os.dup2(silence, 2)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)  # ends the fork even in compiled code
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        if mutant:
            change(mutant, folder)
        for item, following in zip(items, [*items[1:], None], strict=False):
            os.write(writing, f"{item.nodeid}\n".encode())
            signal.alarm(SECONDS)
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if self.failed:
                os.write(writing, f"{self.failed}\n".encode())
                os._exit(0)
        os.write(writing, b"\n")
        os._exit(0)


def tests_for(items: list[pytest.Item], mutant: Mutant) -> list[pytest.Item]:
    """The tests in the order in which they are likely to notice: of the operations, of the module, all others."""
    touched = operations_of(target(mutant))
    words = re.compile(rf"\b({'|'.join({mutant.module, *(o.name.split('.')[0] for o in touched)})})\b")
    texts = {path: bool(words.search(path.read_text(encoding="utf-8"))) for path in {item.path for item in items}}

    def order(item: pytest.Item) -> int | None:
        given = item.callspec.params if hasattr(item, "callspec") else {}
        if item.path.name == "test_kernels.py":
            if "case" not in given or given["case"].operation not in touched:
                return None
            threads = given.get("threads", 0)
            return threads if threads < 2 else None  # two threads run the same loops
        if "trainer" in item.fixturenames:  # other processes know nothing of the mutant
            return None
        return 4 if not texts[item.path] else 0 if "plain_python" in item.name else 3

    places = {item: order(item) for item in items}
    if key(mutant) in EXPLAINED:  # whether it is true is tested, at least where it matters most
        items = [item for item in items if item.path.name == "test_kernels.py"]
    return sorted((item for item in items if places[item] is not None), key=lambda item: places[item])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("modules", nargs="*", help="kernel modules; all of them if none is named")
    parser.add_argument("--every", action="store_true", help="all mutants rather than a few of each function")
    parser.add_argument("--only", default="", help="of these, those whose description has this in it")
    parser.add_argument("--tests", nargs="*", default=FILES, help="files of tests to run, without test_ and .py")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--write", type=Path, help="the page to write")
    options = parser.parse_args()
    of = [mutant for mutant in all_mutants(options.modules, options.every) if options.only in str(mutant)]
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder) / "results"
        plugin = Mutations(of, options.jobs, results)
        files = [*(str(HERE / f"test_{name}.py") for name in options.tests), str(HERE / "mutate_edges.py")]
        without = [f"-pno:{name}" for name in ("terminal", "cacheprovider", "faulthandler")]
        code = pytest.main([*files, *without, "-s", "-oaddopts=", "--timeout=0"], plugins=[plugin])
        if code:
            sys.exit(int(code))
        noticed = dict(json.loads(line) for line in results.read_text().splitlines())
    text = page(of, noticed, options.tests)
    if options.write:
        options.write.write_text(text, encoding="utf-8")
    else:
        print(text)


if __name__ == "__main__":
    main()
