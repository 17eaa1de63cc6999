"""What layers with a weight and a bias share: how these are asked for, and their first values."""

from __future__ import annotations

from ..engine import Parameter, Planner
from ..errors import ConfigError
from .init import fans, get_initializer, uniform_fan_in, zeros
from .initializer import NEEDS, Initializer
from .layer import Layer

CONVENTIONS = ("torch_default", "keras_default")  # of a bias, these depend on the weight


class Weighted(Layer):
    """A layer with a weight of shape (…, in, out), and a bias unless `bias` is False.

    weight_init, bias_init: a name in `nn.init.INITIALIZERS`, or an initializer such as `nn.init.orthogonal(gain=2)`.
    A bias for which none is given gets PyTorch's, U(−1/√fan_in, 1/√fan_in) with the weight's fan_in; but zeros, as in
    Keras, if weight_init is "keras_default".
    """

    bias: bool
    weight_init: str | Initializer
    bias_init: str | Initializer | None

    def _begin_with(
        self, axes: int, bias: bool, weight_init: str | Initializer, bias_init: str | Initializer | None
    ) -> None:
        """Keep these arguments; ConfigError for initializers that cannot fill a weight of so many axes, or a bias."""
        self.bias = bool(bias)
        self.weight_init, self.bias_init = weight_init, bias_init
        self._check("weight_init", weight_init, axes)
        if not (bias_init is None or (isinstance(bias_init, str) and bias_init in CONVENTIONS)):
            self._check("bias_init", bias_init, 1)

    def _check(self, argument: str, value: str | Initializer, axes: int) -> None:
        what = f"{type(self).__name__}({argument}=…)"
        needed = get_initializer(value, what).axes
        if needed > axes:
            expected = f"an initializer for arrays of {axes} ax{'i' if axes == 1 else 'e'}s"
            raise ConfigError(what, expected=expected, got=f"{value!r}, which needs {NEEDS[needed]}")

    def _parameters(
        self, p: Planner, shape: tuple[int, ...], outputs: int, *, per_batch: bool = False
    ) -> tuple[Parameter, Parameter]:
        """The weight, and the bias; per_batch as the planner's."""
        w = p.parameter("weight", shape, get_initializer(self.weight_init), per_batch=per_batch)
        fan_in, _ = fans(shape)
        return w, p.parameter("bias", (outputs if self.bias else 0,), self._bias_initializer(fan_in))

    def _bias_initializer(self, fan_in: int) -> Initializer:
        asked = self.bias_init or ("keras_default" if self.weight_init == "keras_default" else "torch_default")
        if asked == "keras_default":
            return zeros()
        return uniform_fan_in(fan_in) if asked == "torch_default" else get_initializer(asked)
