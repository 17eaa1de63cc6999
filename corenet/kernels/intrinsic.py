"""Functions of numbers and flat arrays whose compiled counterpart is LLVM code written by hand, for Numba.

A tile is a plain function, which is its definition, and code that takes its place: `make_intrinsic` joins the two. The
code is made by body(code, given): `given` has the function's arguments by name, arrays as pointers to their first
element, and `code` the few things that all such code says.
"""

import inspect
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from .vectors import LANES, NARROW, Vectors


class Code:
    """Says in LLVM's words what tiles have in common."""

    def __init__(self, builder: Any):
        from llvmlite import ir

        self.builder, self.i64 = builder, ir.IntType(64)
        self.lengths: dict[str, Any] = {}  # of each array

    def number(self, value: int) -> Any:
        """An integer that is known."""
        from llvmlite import ir

        return ir.Constant(self.i64, value)

    def plus(self, value: Any, number: int) -> Any:
        """The sum with an integer that is known."""
        return self.builder.add(value, self.number(number)) if number else value

    def at(self, pointer: Any, *offsets: Any) -> Any:
        """The place that many elements further."""
        for offset in offsets:
            pointer = self.builder.gep(pointer, [offset])
        return pointer

    def load(self, pointer: Any, *offsets: Any) -> Any:
        """The element there."""
        return self.builder.load(self.at(pointer, *offsets))

    def less(self, a: Any, b: Any) -> Any:
        return self.builder.icmp_signed("<", a, b)

    def smaller(self, a: Any, b: Any) -> Any:
        return self.builder.select(self.less(a, b), a, b)

    def opaque(self, value: Any) -> Any:
        """The same integer, of which LLVM knows nothing: else it would step a pointer for each row of a tile through
        a loop, in memory since registers do not suffice, instead of adding one offset to all."""
        from llvmlite import ir

        return self.builder.asm(ir.FunctionType(self.i64, [self.i64]), "", "=r,0", [value], side_effect=False)

    def call(self, name: str, *operands: Any) -> Any:
        """What a function of LLVM's makes of integers."""
        from llvmlite import ir
        from numba.core import cgutils

        function = ir.FunctionType(self.i64, [operand.type for operand in operands])
        return self.builder.call(cgutils.get_or_insert_function(self.builder.module, function, name), operands)

    def by_columns(self, cols: Any, body: Callable[[Vectors], None]) -> None:
        """The code of body(vectors) for whole vectors, for some of their columns, and for few."""
        with self.builder.if_else(self.less(cols, self.number(LANES))) as (edge, whole):
            with whole:
                body(Vectors(self.builder, LANES))
            with edge, self.builder.if_else(self.less(self.number(NARROW), cols)) as (wide, narrow):
                with wide:
                    body(Vectors(self.builder, LANES, cols))
                with narrow:
                    body(Vectors(self.builder, NARROW, cols))


def make_intrinsic(function: Callable, body: Callable[[Code, Any], None], **dtypes: tuple[str, ...]) -> Any:
    """What Numba puts in the place of `function`: the code of `body`, if the arrays named have these types, such as
    float32=("a", "b")."""
    from numba import types
    from numba.extending import intrinsic

    names = list(inspect.signature(function).parameters)

    def generate(context, builder, signature, args):
        code, given = Code(builder), SimpleNamespace()
        for name, kind, arg in zip(names, signature.args, args, strict=True):
            if isinstance(kind, types.Array):
                array = context.make_array(kind)(context, builder, value=arg)
                arg, code.lengths[name] = array.data, builder.extract_value(array.shape, 0)
            setattr(given, name, arg)
        body(code, given)
        return context.get_dummy_value()

    def typed(context, *given):
        kinds = dict(zip(names, given, strict=True))
        if any(str(kinds[name].dtype) != dtype for dtype, some in dtypes.items() for name in some):
            return None
        return types.void(*(g if isinstance(g, types.Array) else types.int64 for g in given)), generate

    # Numba hands over arguments by the names it finds here.
    parameters = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in ("context", *names)]
    typed.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return intrinsic(typed)
