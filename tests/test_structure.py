"""How the house is built: who may import whom, what no file may hold, and that everything public says what it is."""

import ast
import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest

import corenet

ROOT = Path(corenet.__file__).parent
SOURCES = sorted(ROOT.rglob("*.py"))
NAMES = [path.relative_to(ROOT).as_posix() for path in SOURCES]
CHECKOUT = ROOT.parent

# From the bottom up: a part may import those below it; those on one floor do not know each other.
FLOORS = [
    {"errors"}, {"kernels"}, {"engine", "optim"}, {"nn"}, {"models", "parallel"}, {"train"}, {"report"}, {"bench"},
    {"cli"},
]  # fmt: skip
# Beside the floors: data sets are used from `train` up, and know nothing but errors.
DATASETS = {"datasets": {"errors"}}
DATASETS_FROM = "train"
EXEMPT = {"__init__.py", "__main__.py"}  # the package's own front door

# Libraries that only some parts may use.
LIBRARIES = {
    "numba": {"kernels"}, "llvmlite": {"kernels", "cli"}, "rich": {"report", "cli"}, "typer": {"cli"},
    "matplotlib": {"report"}, "PIL": {"datasets"}, "safetensors": {"train"}, "subprocess": {"parallel"},
}  # fmt: skip
MAX_LINES = 400


def part(name: str) -> str:
    return name.split("/")[0].removesuffix(".py")


def allowed() -> dict[str, set[str]]:
    """For each part, those it may import."""
    table = dict(DATASETS)
    below: set[str] = set()
    for floor in FLOORS:
        if DATASETS_FROM in floor:
            below |= set(DATASETS)
        table |= {name: set(below) for name in floor}
        below |= floor
    return table


def tree(name: str) -> ast.Module:
    return ast.parse((ROOT / name).read_text(encoding="utf-8"))


def imports(name: str) -> Iterator[tuple[int, str]]:
    """(line, absolute dotted name) of everything that a file imports, wherever in it."""
    package = ["corenet", *name.split("/")[:-1]]
    for node in ast.walk(tree(name)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) + 1 - node.level] if node.level else []
            module = [*base, *(node.module.split(".") if node.module else [])]
            if module == ["corenet"]:
                yield from ((node.lineno, f"corenet.{alias.name}") for alias in node.names)
            else:
                yield node.lineno, ".".join(module)


def wrong_imports(name: str) -> list[str]:
    here = part(name)
    may = allowed()[here] | {here, "__version__"} | ({"_native"} if here == "kernels" else set())
    wrong = []
    for line, module in imports(name):
        top, rest = (module + ".").split(".")[:2]
        if rest not in may if top == "corenet" else here not in LIBRARIES.get(top, {here}):
            wrong.append(f"{name}:{line} imports {module}")
    return wrong


def test_every_part_has_its_floor():
    assert {part(name) for name in NAMES} - {"__init__", "__main__"} <= set(allowed())


@pytest.mark.parametrize("name", [name for name in NAMES if name not in EXEMPT])
def test_imports_point_downward(name):
    assert wrong_imports(name) == []


def test_workers_see_no_concrete_layer():
    layers = {kind.__module__.removeprefix("corenet.") for kind in corenet.nn.description.LAYERS.values()}
    for name in NAMES:
        if part(name) == "parallel":
            assert layers.isdisjoint(module.removeprefix("corenet.") for _, module in imports(name)), name


def test_the_checker_sees_upward_imports(tmp_path, monkeypatch):
    monkeypatch.setattr("test_structure.ROOT", tmp_path)
    (tmp_path / "kernels").mkdir()
    for source in (
        "from ..nn import Conv2d", "from .. import nn", "from ..nn.layer import Layer", "import corenet.nn",
        "from corenet import nn", "def f():\n    from ..train.trainer import Trainer", "import rich.console",
    ):  # fmt: skip
        (tmp_path / "kernels" / "new.py").write_text(source)
        assert len(wrong_imports("kernels/new.py")) == 1, source
    for source in ("from ..errors import ConfigError", "from .tile import tile", "import numba", "from . import tile"):
        (tmp_path / "kernels" / "new.py").write_text(source)
        assert wrong_imports("kernels/new.py") == [], source


@pytest.mark.parametrize("name", NAMES)
def test_files_can_be_read_in_one_sitting(name):
    assert len((ROOT / name).read_text(encoding="utf-8").splitlines()) <= MAX_LINES


# What no file may hold.

NO_MODULES = {
    "pickle", "_pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal",  # run what a file says
    "multiprocessing", "concurrent",  # bring fork, or a Barrier that ignores its timeout
}  # fmt: skip
NO_CALLS = {"eval", "exec", "compile", "__import__"}
NO_NAMES = {"fork", "forkpty", "fork_exec", "allow_pickle"}


def forbidden(name: str) -> list[str]:
    found = [f"{name}:{line} {module}" for line, module in imports(name) if module.split(".")[0] in NO_MODULES]
    for node in ast.walk(tree(name)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in NO_CALLS:
            found.append(f"{name}:{node.lineno} {node.func.id}()")
        elif isinstance(node, ast.Attribute) and node.attr in NO_NAMES:
            found.append(f"{name}:{node.lineno} .{node.attr}")
        elif isinstance(node, ast.Name) and node.id in NO_NAMES:
            found.append(f"{name}:{node.lineno} {node.id}")
        elif isinstance(node, ast.Constant) and node.value in ("fork", "forkserver"):
            found.append(f"{name}:{node.lineno} {node.value!r}")
        elif isinstance(node, ast.keyword) and node.arg == "allow_pickle":
            if not (isinstance(node.value, ast.Constant) and node.value.value is False):
                found.append(f"{name}:{node.value.lineno} allow_pickle")
        elif isinstance(node, ast.keyword) and node.arg == "fastmath":
            found.append(f"{name}:{node.value.lineno} fastmath")
    return found


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_unpickled_evaluated_or_forked(name):
    assert forbidden(name) == []


def test_arrays_are_loaded_without_pickles():
    """np.load must say so itself: its default has changed before."""
    for name in NAMES:
        for node in ast.walk(tree(name)):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("np.load", "numpy.load"):
                assert "allow_pickle" in {keyword.arg for keyword in node.keywords}, f"{name}:{node.lineno}"


def test_the_checker_sees_what_is_forbidden(tmp_path, monkeypatch):
    monkeypatch.setattr("test_structure.ROOT", tmp_path)
    for source in (
        "import pickle", "from pickle import loads", "import multiprocessing.context", "eval('1')", "exec('')",
        "os.fork()", "get_context('fork')", "np.load(f, allow_pickle=True)", "njit(fastmath=True)", "__import__('os')",
    ):  # fmt: skip
        (tmp_path / "new.py").write_text(source)
        assert len(forbidden("new.py")) == 1, source
    (tmp_path / "new.py").write_text(
        "'''Never eval, fork or pickle.'''\nnp.load(f, allow_pickle=False)\nre.compile('x')"
    )
    assert forbidden("new.py") == []


def built_from() -> list[Path]:
    """What an installation is compiled from; tests may run without a checkout."""
    csrc = CHECKOUT / "csrc"
    sources = [path for kind in ("*.[ch]", "*.inc", "*.py") for path in csrc.glob(kind)]
    return [path for path in (*sources, CHECKOUT / "setup.py") if path.is_file()]


def code_of(path: Path) -> str:
    """The text without comments and, in Python, without docstrings."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        return ast.unparse(without_docstrings(ast.parse(text)))
    return re.sub(r"/\*.*?\*/|//[^\n]*", "", text, flags=re.DOTALL)


def without_docstrings(module: ast.Module) -> ast.Module:
    for node in ast.walk(module):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    return module


@pytest.mark.parametrize("flag", ["march=native", "mtune=native", "ffast-math", "Ofast", "funsafe-math", "fork("])
def test_what_is_compiled_is_portable_and_exact(flag):
    files = [*built_from(), *SOURCES]
    assert [str(path) for path in files if flag in code_of(path)] == []


def test_the_c_library_is_looked_at():
    if (CHECKOUT / "csrc").is_dir():
        assert {path.name for path in built_from()} >= {"barrier.c", "build_native.py", "setup.py"}


# Everything public says what it is.


SEEN_BY_USERS = {"datasets", "errors", "nn", "optim", "parallel", "train"}


def modules() -> list[str]:
    return [name for _, name, _ in pkgutil.walk_packages(corenet.__path__, "corenet.") if "__main__" not in name]


@pytest.mark.parametrize("name", NAMES)
def test_modules_classes_and_functions_have_docstrings(name):
    module = tree(name)
    missing = [] if ast.get_docstring(module) else [name]
    for node in module.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_"):
            nest = any(ast.unparse(mark).endswith(".nest") for mark in node.decorator_list)
            if not (nest or node.name == "main" or ast.get_docstring(node)):  # the definition, or the module, says it
                missing.append(f"{name}:{node.lineno} {node.name}")
    assert missing == []


@pytest.mark.parametrize("name", [name for name in modules() if name.split(".")[1] in SEEN_BY_USERS])
def test_methods_have_docstrings_of_their_own_or_from_a_base(name):
    module = importlib.import_module(name)
    missing = []
    for kind in vars(module).values():
        if not inspect.isclass(kind) or kind.__module__ != name or kind.__name__.startswith("_"):
            continue
        if Protocol in kind.__bases__:
            continue
        for attribute, value in vars(kind).items():
            is_method = inspect.isfunction(value) or isinstance(value, property | classmethod | staticmethod)
            if is_method and not attribute.startswith("_") and not inspect.getdoc(getattr(kind, attribute)):
                missing.append(f"{kind.__name__}.{attribute}")
    assert missing == []
