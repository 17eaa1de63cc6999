"""Pickles that hold plain values and arrays of bytes, without Python's unpickler, which can be told to call anything.

A pickle is a program for a machine with a stack and a memo. Here it may use the instructions that build values, and
two calls: those that make a NumPy array of uint8 and its dtype. Everything else is refused by name.

What a short program makes can be endless to look at: the memo lets a tuple hold another twice, which holds another
twice, and so on. So nothing here hashes, compares or prints a value before its type is known, and the number of
instructions is bounded: an empty dict takes one byte of a pickle and 64 of memory.
"""

from __future__ import annotations

import math
import pickletools
from typing import Any, cast

import numpy as np

MAX_INSTRUCTIONS = 1 << 18  # a published batch has some 40,000: an image has a label and a file name
MAX_DIMS = 4

_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_VALUES = {
    "BININT", "BININT1", "BININT2", "INT", "LONG", "LONG1", "LONG4", "BINFLOAT",
    "BINSTRING", "SHORT_BINSTRING", "STRING", "BINUNICODE", "SHORT_BINUNICODE", "UNICODE", "BINBYTES", "SHORT_BINBYTES",
}  # fmt: skip
_GLOBALS = {
    "numpy.core.multiarray._reconstruct", "numpy._core.multiarray._reconstruct", "numpy.ndarray", "numpy.dtype",
    "_codecs.encode", "__builtin__.bytes",
}  # fmt: skip
_MARK = object()


class _Global:
    """A function or class that a pickle names."""

    def __init__(self, module: str, name: str):
        self.name = f"{module}.{name}"
        if self.name not in _GLOBALS:
            raise ValueError(f"a pickle that wants {self.name[:80]}")


class _Array:
    """An array whose contents have not come yet; `dtype`: its type's name, "u1" or "b" for bytes."""

    def __init__(self, kind: str):
        self.kind = kind
        self.values: np.ndarray | None = None

    def set_state(self, state: Any) -> None:
        if self.kind == "dtype":
            return  # byte order and the like of one byte
        _, shape, dtype, fortran, content = state
        content = content.encode("latin-1") if isinstance(content, str) else content
        if not isinstance(dtype, _Array) or dtype.kind != "dtype" or not isinstance(content, bytes):
            raise ValueError("an array of something else than bytes")
        if len(_expect(shape, tuple)) > MAX_DIMS:
            raise ValueError(f"an array of {len(shape)} dimensions")
        # Each by itself first: the product of numbers as long as the file would take hours.
        if not all(type(length) is int and 0 <= length <= len(content) for length in shape):
            raise ValueError(f"an array longer than its {len(content):,} bytes, or of no length")
        if math.prod(shape) != len(content):
            raise ValueError(f"an array of shape {shape} with {len(content)} bytes")
        self.values = np.frombuffer(content, np.uint8).reshape(shape, order="F" if fortran else "C")


def loads(data: bytes) -> Any:
    """The value that a pickle holds: dicts, lists, tuples, text, bytes, numbers, and uint8 arrays.

    Raises ValueError, and what else a damaged file may cause, for anything else.
    """
    stack: list[Any] = []
    memo: dict[int, Any] = {}

    def to_mark() -> list[Any]:
        place = len(stack) - 1
        while stack[place] is not _MARK:
            place -= 1
            if place < 0:
                raise ValueError("a pickle without a mark")
        items = stack[place + 1 :]
        del stack[place:]
        return items

    for count, (opcode, given, _) in enumerate(pickletools.genops(data)):
        name, argument = opcode.name, cast(Any, given)
        if count >= MAX_INSTRUCTIONS:
            raise ValueError(f"a pickle of more than {MAX_INSTRUCTIONS:,} instructions")
        if name in ("PROTO", "FRAME"):
            continue
        if name in _CONSTANTS:
            stack.append(_CONSTANTS[name])
        elif name in _VALUES:
            stack.append(argument)
        elif name == "MARK":
            stack.append(_MARK)
        elif name in ("EMPTY_DICT", "EMPTY_LIST", "EMPTY_TUPLE"):
            stack.append({"EMPTY_DICT": {}, "EMPTY_LIST": [], "EMPTY_TUPLE": ()}[name])
        elif name in ("TUPLE1", "TUPLE2", "TUPLE3"):
            length = int(name[-1])
            stack[-length:] = [tuple(stack[-length:])]
        elif name == "TUPLE":
            stack.append(tuple(to_mark()))
        elif name == "LIST":
            stack.append(to_mark())
        elif name == "DICT":
            items = to_mark()
            stack.append({})
            _put(stack[-1], items)
        elif name in ("APPEND", "APPENDS"):
            items = [stack.pop()] if name == "APPEND" else to_mark()
            _expect(stack[-1], list).extend(items)
        elif name in ("SETITEM", "SETITEMS"):
            items = [stack.pop(-2), stack.pop()] if name == "SETITEM" else to_mark()
            _put(_expect(stack[-1], dict), items)
        elif name in ("BINPUT", "LONG_BINPUT", "PUT"):
            memo[int(argument)] = stack[-1]
        elif name == "MEMOIZE":
            memo[len(memo)] = stack[-1]
        elif name in ("BINGET", "LONG_BINGET", "GET"):
            stack.append(memo[int(argument)])
        elif name == "GLOBAL":
            stack.append(_Global(*argument.split(" ", 1)))
        elif name == "STACK_GLOBAL":
            stack.append(_Global(_expect(stack.pop(-2), str), _expect(stack.pop(), str)))
        elif name == "REDUCE":
            arguments, function = _expect(stack.pop(), tuple), _expect(stack.pop(), _Global)
            stack.append(_call(function.name, arguments))
        elif name == "BUILD":
            state = stack.pop()
            _expect(stack[-1], _Array).set_state(state)
        elif name == "STOP":
            break
        else:
            raise ValueError(f"a pickle with the instruction {name}")
    (value,) = stack
    return _plain(value)


def _call(function: str, arguments: tuple[Any, ...]) -> Any:
    first = arguments[0] if arguments else None
    if function == "_codecs.encode" and arguments[1] == "latin1":  # how Python 3 writes bytes for Python 2
        return _expect(first, str).encode("latin-1")
    if function == "__builtin__.bytes" and not arguments:
        return b""
    if function == "numpy.dtype" and first in ("u1", "|u1"):
        return _Array("dtype")
    if function.endswith("._reconstruct") and isinstance(first, _Global) and first.name == "numpy.ndarray":
        return _Array("array")
    raise ValueError(f"a pickle that calls {function} in another way than an array needs")


def _put(values: dict[Any, Any], items: list[Any]) -> None:
    """Keys and values in turn; a key is text, bytes or a number."""
    for key, value in zip(items[::2], items[1::2], strict=True):
        if not isinstance(key, (str, bytes, int)):
            raise ValueError(f"a pickle with a {type(key).__name__} for a key")
        values[key] = value


def _expect(value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        raise ValueError(f"a pickle with a {type(value).__name__} for a {kind.__name__}")
    return value


def _plain(value: Any) -> Any:
    """The top level, with arrays in place of what stood for them."""
    values = _expect(value, dict)
    return {key: item.values if isinstance(item, _Array) else item for key, item in values.items()}
