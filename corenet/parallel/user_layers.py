"""How workers come by a user's own layers: they import the module that defines the class.

    my_layers.py    class Swish(nn.Layer): …     imported by the user's program, and by every worker
    train.py        class Swish(nn.Layer): …     the program itself: workers run it under another name, so what trains
                                                 must stand below if __name__ == "__main__":

A class inside a function, in a notebook or on standard input cannot be imported; it belongs in a file of its own.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from functools import reduce
from typing import Any

from ..errors import ConfigError
from ..nn import Layer
from ..nn.description import name_of

_MAIN = "__corenet_main__"  # what the user's program is called in a worker

_OWN_FILE = "Put the class into a file beside your program, such as my_layers.py, and import it"

_imported = ""  # in a worker: the user's program or module that it imports, or has imported, for its layers


def where_to_find(kinds: list[type[Layer]]) -> dict[str, Any]:
    """What a worker needs to import these classes. Raises ConfigError for those that nobody can import."""
    layers, script = {}, None
    for kind in kinds:
        what, module = f"layer {kind.__qualname__}", kind.__module__
        if "<locals>" in kind.__qualname__:
            raise ConfigError(what, expected="a class of a module", got="one inside of a function", fix=_OWN_FILE)
        if module == "__main__":
            main = sys.modules["__main__"]
            spec, script = getattr(main, "__spec__", None), getattr(main, "__file__", None)
            if script is None or not os.path.isfile(script):
                got = "one of a notebook, or of standard input"
                raise ConfigError(what, expected="a class that workers can import", got=got, fix=_OWN_FILE)
            module, script = spec.name if spec else module, os.path.abspath(script)  # python -m package.program has one
        layers[name_of(kind)] = module
    return {"layers": layers, "script": script}


def import_layers(layers: dict[str, str], script: str | None) -> dict[str, type[Layer]]:
    """In a worker: the classes of `where_to_find`, by name as in a description."""
    global _imported
    found: dict[str, type[Layer]] = {}
    for name, place in layers.items():
        qualname = name.partition(":")[2]
        _imported = os.path.basename(script) if script and place == "__main__" else place
        try:
            module: Any = _run(script) if script and place == "__main__" else importlib.import_module(place)
        except SystemExit as error:
            expected = f"to be imported by a worker, for its layer {qualname}"
            fix = (
                f'Put what reads the command line, or exits, below if __name__ == "__main__":. Or: {_OWN_FILE.lower()}'
            )
            raise ConfigError(_imported, expected=expected, got=f"exit code {error.code}", fix=fix) from error
        found[name] = reduce(getattr, qualname.split("."), module)
    return found


def _run(script: str) -> Any:
    """The user's program as a module."""
    if _MAIN not in sys.modules:
        spec = importlib.util.spec_from_file_location(_MAIN, script)
        assert spec is not None and spec.loader is not None
        module = sys.modules[_MAIN] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return sys.modules[_MAIN]


def check_may_have_workers() -> None:
    """Raise ConfigError in a worker, which runs the user's program for a layer's sake."""
    if _imported:
        expected = 'training below if __name__ == "__main__":, since a layer of it is imported by every worker'
        raise ConfigError(_imported, expected=expected, got="training at the top level", fix=f"Or: {_OWN_FILE.lower()}")
