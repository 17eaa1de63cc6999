"""What a kernel is: a NumPy definition, and a loop nest of the same signature that a compiler can make fast.

    @operation
    def forward(n, x, y):                 the definition: any float dtype, NumPy only, meant to be read
        np.maximum(x[:n], 0, out=y[:n])

    @forward.nest
    def forward_nest(n, x, y):            the loops: plain Python here, machine code once Numba has compiled it
        for i in prange(n): ...

The first argument `n` is the number of samples that are valid; arrays are planned for a whole chunk and kernels leave
what lies beyond sample n alone. Outputs never alias inputs. Importing a kernel module does not import Numba: nests are
ordinary functions until `numba_backend` compiles them, and run as slow, steppable Python when called as they stand.
"""

import inspect
from collections.abc import Callable

prange = range  # stands for numba.prange in nests; `numba_backend` puts the real one in its place


class Operation:
    """One operation: its NumPy definition and, where there is one, its loop nest."""

    def __init__(self, reference: Callable):
        self.name = f"{reference.__module__.rpartition('.')[2]}.{reference.__name__}"
        self.reference = reference
        self.loops: Callable | None = None
        self.__doc__ = reference.__doc__

    def __call__(self, *args):
        """Run the NumPy definition."""
        return self.reference(*args)

    def __repr__(self):
        return f"<operation {self.name}>"

    def nest(self, loops: Callable) -> Callable:
        """Register a loop nest; its parameters must be those of the definition."""
        expected, got = inspect.signature(self.reference), inspect.signature(loops)
        if list(expected.parameters) != list(got.parameters):
            raise TypeError(f"nest of {self.name}: expected parameters {expected}, got {got}")
        self.loops = loops
        return loops


def operation(reference: Callable) -> Operation:
    """Declare the decorated NumPy function to be the definition of an operation."""
    return Operation(reference)


def device(function: Callable) -> Callable:
    """Mark a plain function that nests call: it is compiled together with them."""
    function.is_device = True  # type: ignore[attr-defined]
    return function
