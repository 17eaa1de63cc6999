"""Pickles that hold plain values and arrays of bytes, without Python's unpickler, which can be told to call anything.

A pickle is a program for a machine with a stack and a memo. Here it may use the instructions that build values, and
two calls: those that make a NumPy array of uint8 and its dtype. Everything else is refused by name. Its memory is
bounded by the file: each instruction makes one value of bytes that are there.
"""

from __future__ import annotations

import math
import pickletools
from typing import Any, cast

import numpy as np

_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_VALUES = {
    "BININT", "BININT1", "BININT2", "INT", "LONG", "LONG1", "LONG4", "BINFLOAT",
    "BINSTRING", "SHORT_BINSTRING", "STRING", "BINUNICODE", "SHORT_BINUNICODE", "UNICODE", "BINBYTES", "SHORT_BINBYTES",
}  # fmt: skip
_GLOBALS = {
    ("numpy.core.multiarray", "_reconstruct"), ("numpy._core.multiarray", "_reconstruct"), ("numpy", "ndarray"),
    ("numpy", "dtype"), ("_codecs", "encode"), ("__builtin__", "bytes"),
}  # fmt: skip
_MARK = object()


class _Array:
    """An array whose contents have not come yet; `dtype`: its type's name, "u1" or "b" for bytes."""

    def __init__(self, kind: str):
        self.kind = kind
        self.values: np.ndarray | None = None

    def set_state(self, state: Any) -> None:
        if self.kind == "dtype":
            return  # byte order and the like of one byte
        _, shape, dtype, fortran, content = state
        lengths = tuple(int(length) for length in shape)
        content = content.encode("latin-1") if isinstance(content, str) else content
        if not isinstance(dtype, _Array) or dtype.kind != "dtype" or not isinstance(content, bytes):
            raise ValueError("an array of something else than bytes")
        if min(lengths, default=0) < 0 or math.prod(lengths) != len(content):
            raise ValueError(f"an array of shape {lengths} with {len(content)} bytes")
        self.values = np.frombuffer(content, np.uint8).reshape(lengths, order="F" if fortran else "C")


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

    for opcode, given, _ in pickletools.genops(data):
        name, argument = opcode.name, cast(Any, given)
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
            count = int(name[-1])
            stack[-count:] = [tuple(stack[-count:])]
        elif name == "TUPLE":
            stack.append(tuple(to_mark()))
        elif name == "LIST":
            stack.append(to_mark())
        elif name == "DICT":
            items = to_mark()
            stack.append(dict(zip(items[::2], items[1::2], strict=True)))
        elif name in ("APPEND", "APPENDS"):
            items = [stack.pop()] if name == "APPEND" else to_mark()
            _expect(stack[-1], list).extend(items)
        elif name in ("SETITEM", "SETITEMS"):
            items = [stack.pop(-2), stack.pop()] if name == "SETITEM" else to_mark()
            _expect(stack[-1], dict).update(zip(items[::2], items[1::2], strict=True))
        elif name in ("BINPUT", "LONG_BINPUT", "PUT"):
            memo[int(argument)] = stack[-1]
        elif name == "MEMOIZE":
            memo[len(memo)] = stack[-1]
        elif name in ("BINGET", "LONG_BINGET", "GET"):
            stack.append(memo[int(argument)])
        elif name in ("GLOBAL", "STACK_GLOBAL"):
            of = tuple(argument.split(" ")) if name == "GLOBAL" else (stack.pop(-2), stack.pop())
            if of not in _GLOBALS:
                raise ValueError(f"a pickle that wants {'.'.join(map(str, of))[:80]}")
            stack.append(of)
        elif name == "REDUCE":
            arguments, function = stack.pop(), stack.pop()
            stack.append(_call(function, arguments))
        elif name == "BUILD":
            state = stack.pop()
            _expect(stack[-1], _Array).set_state(state)
        elif name == "STOP":
            break
        else:
            raise ValueError(f"a pickle with the instruction {name}")
    (value,) = stack
    return _plain(value)


def _call(function: Any, arguments: Any) -> Any:
    if function == ("_codecs", "encode") and arguments[1] == "latin1":  # how Python 3 writes bytes for Python 2
        return _expect(arguments[0], str).encode("latin-1")
    if function == ("__builtin__", "bytes") and arguments == ():
        return b""
    if function == ("numpy", "dtype") and arguments[0] in ("u1", "|u1"):
        return _Array("dtype")
    if isinstance(function, tuple) and function[1:] == ("_reconstruct",) and arguments[0] == ("numpy", "ndarray"):
        return _Array("array")
    raise ValueError(f"a pickle that calls {function!r:.80}")


def _expect(value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        raise ValueError(f"a pickle with a {type(value).__name__} for a {kind.__name__}")
    return value


def _plain(value: Any) -> Any:
    """The top level, with arrays in place of what stood for them."""
    values = _expect(value, dict)
    return {key: item.values if isinstance(item, _Array) else item for key, item in values.items()}
