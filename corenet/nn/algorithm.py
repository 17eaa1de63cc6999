"""The algorithms of Conv2d, and which one "auto" takes: by shapes only, never by the machine: it shows in the bits.

A model file keeps what "auto" took (`Planner.decide`), so that a net goes on computing as it was trained.
"""

import math
from types import ModuleType

from ..errors import ConfigError
from ..kernels import winograd_2x3, winograd_4x3, winograd_4x5
from ..kernels.operation import Operation
from ..kernels.tile import LANES

ALGORITHMS = ("auto", "direct", "winograd4", "winograd2")
WINOGRAD: dict[tuple[str, tuple[int, ...]], ModuleType] = {
    ("winograd4", (3, 3)): winograd_4x3,
    ("winograd4", (5, 5)): winograd_4x5,
    ("winograd2", (3, 3)): winograd_2x3,
}
# How full its 4×4 patches of the output have to be for a filter's "winograd4" to be faster in all three passes, as
# measured with 16 to 128 channels and outputs of 1×1 to 32×32.
FULL_ENOUGH: dict[tuple[int, ...], float] = {(3, 3): 0.5, (5, 5): 0.375}


def check_algorithm(algorithm: str, kernel_size: tuple[int, ...], plain: bool, layer: object) -> None:
    """Raise ConfigError for one that there is not, or that cannot do this; plain: stride, dilation and groups are 1."""
    if algorithm not in ALGORITHMS:
        expected = "one of " + ", ".join(map(repr, ALGORITHMS))
        raise ConfigError("Conv2d(algorithm=…)", expected=expected, got=repr(algorithm))
    filters = ["×".join(map(str, size)) for name, size in WINOGRAD if name == algorithm]
    if filters and not (plain and (algorithm, kernel_size) in WINOGRAD):
        expected = f"a {' or '.join(filters)} filter, stride 1, dilation 1, groups 1"
        raise ConfigError(f"Conv2d(algorithm={algorithm!r})", expected=expected, got=f"{layer}")


def fastest(kernel_size: tuple[int, ...], channels: int, height: int, width: int) -> str:
    """For a plain convolution with at least so many channels on both sides, to outputs of height × width."""
    filled = height * width / (16 * -(-height // 4) * -(-width // 4))
    pays = channels >= LANES and filled >= FULL_ENOUGH.get(kernel_size, 2)
    return "winograd4" if pays else "direct"


def data_gradient(kernels: ModuleType, image: tuple[int, ...], output: tuple[int, ...]) -> Operation:
    """Winograd's data gradient for images and outputs of such sizes, in the form that takes fewer patches: time goes by
    their number, as measured with 16 to 128 channels and outputs of 4×4 to 200×200."""

    def patches(size: tuple[int, ...]) -> int:
        return math.prod(-(-extent // kernels.OUTPUTS) for extent in size)

    return kernels.backward_data_adjoint if patches(output) < patches(image) else kernels.backward_data
