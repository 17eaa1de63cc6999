"""Vectors of floats in LLVM code: loads, stores, with or without a mask, and fused multiply-adds.

LLVM splits <16 x float> into what the CPU has (one register with AVX-512, two with AVX2, four with NEON or SSE).
llvmlite is imported when the first code is made: this module can be imported without it.
"""

from __future__ import annotations

from typing import Any

LANES = 16  # floats of a vector
NARROW = 8  # floats of one for few columns


def _bytes(kind: Any) -> int:
    """Bytes of an element of a vector: what its address is a multiple of."""
    return getattr(kind.element, "width", 32) // 8


def _name(kind: Any) -> str:
    """The name of a vector's type in those of LLVM's intrinsics."""
    return f"v{kind.count}{'i' if hasattr(kind.element, 'width') else 'f'}{8 * _bytes(kind)}"


class Vectors:
    """Code for vectors of `lanes` floats, of which the first `cols` (an LLVM integer) are there; None: all."""

    def __init__(self, builder: Any, lanes: int, cols: Any = None):
        from llvmlite import ir

        self.builder, self.lanes = builder, lanes
        self.kind = ir.VectorType(ir.FloatType(), lanes)
        self._mask = None
        if cols is not None:
            numbers = ir.VectorType(ir.IntType(64), lanes)
            self._mask = builder.icmp_signed("<", ir.Constant(numbers, list(range(lanes))), self.splat(cols, numbers))

    def function(self, name: str, result: Any, *parameters: Any) -> Any:
        """An intrinsic of LLVM."""
        from llvmlite import ir
        from numba.core import cgutils

        return cgutils.get_or_insert_function(self.builder.module, ir.FunctionType(result, parameters), name)

    def splat(self, scalar: Any, kind: Any = None) -> Any:
        """The same number in every lane."""
        from llvmlite import ir

        kind, i32 = kind or self.kind, ir.IntType(32)
        one = self.builder.insert_element(ir.Constant(kind, ir.Undefined), scalar, ir.Constant(i32, 0))
        same_lane = ir.Constant(ir.VectorType(i32, self.lanes), [0] * self.lanes)
        return self.builder.shuffle_vector(one, ir.Constant(kind, ir.Undefined), same_lane)

    def fma(self, a: Any, b: Any, c: Any) -> Any:
        """a·b + c, rounded once where the CPU can."""
        return self.builder.call(self.function(f"llvm.fmuladd.v{self.lanes}f32", *[self.kind] * 4), [a, b, c])

    def load(self, place: Any, align: int | None = None) -> Any:
        """The numbers there; lanes that are not there are neither read nor anything but 0.

        align: what the address is a multiple of; None: an element's bytes.
        """
        from llvmlite import ir

        kind = ir.VectorType(place.type.pointee, self.lanes)
        place = self.builder.bitcast(place, kind.as_pointer())
        if self._mask is None:
            return self.builder.load(place, align=align or _bytes(kind))
        kinds = kind, place.type, ir.IntType(32), self._mask.type, kind
        masked = self.function(f"llvm.masked.load.{_name(kind)}.p0", *kinds)
        return self.builder.call(masked, [place, self._align(kind, align), self._mask, ir.Constant(kind, None)])

    def store(self, value: Any, place: Any, align: int | None = None) -> None:
        """Write the lanes that are there; align as in `load`."""
        from llvmlite import ir

        place = self.builder.bitcast(place, value.type.as_pointer())
        if self._mask is None:
            self.builder.store(value, place, align=align or _bytes(value.type))
            return
        kinds = ir.VoidType(), value.type, place.type, ir.IntType(32), self._mask.type
        masked = self.function(f"llvm.masked.store.{_name(value.type)}.p0", *kinds)
        self.builder.call(masked, [value, place, self._align(value.type, align), self._mask])

    @staticmethod
    def _align(kind: Any, align: int | None) -> Any:
        from llvmlite import ir

        return ir.Constant(ir.IntType(32), align or _bytes(kind))
