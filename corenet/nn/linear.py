"""The dense layer."""

from ..engine import Planner, Tensor
from ..kernels import bias, linear
from .initializer import Initializer
from .layer import integer
from .weighted import Weighted


class Linear(Weighted):
    """y = x·W + b on vectors (in_features,); weight (in_features, out_features), bias (out_features,).

    weight_init and bias_init: a name, or an initializer, of `nn.init`.
    The weight's gradient is one product over the whole batch, from batch-wide panels of x and dy (kernels/linear.py).
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        *,
        weight_init: str | Initializer = "torch_default",
        bias_init: str | Initializer | None = None,
    ):
        self.in_features = integer("Linear", "in_features", in_features, 1)
        self.out_features = integer("Linear", "out_features", out_features, 1)
        self._begin_with(2, bias, weight_init, bias_init)

    def plan(self, p: Planner, x: Tensor) -> Tensor:
        if x.shape != (self.in_features,):
            flat = 1
            for size in x.shape:
                flat *= size
            p.fail(
                expected=f"vectors of {self.in_features} features (in_features)",
                got=f"input of shape {x.shape}",
                fix=f"Set in_features={flat}" + (", after a Flatten layer" if len(x.shape) > 1 else ""),
            )
        w, b = self._parameters(p, (self.in_features, self.out_features), self.out_features, per_batch=True)
        y = p.activation((self.out_features,))
        p.multiply_adds(self.in_features * self.out_features, x)
        p.forward(linear.forward, x.data, w.data, b.data, y.data)
        p.product(linear.backward_weights, x.data, y.grad, w)
        if self.bias and p.training:
            p.backward(bias.backward, p.view(y.grad, (p.chunk, 1, self.out_features)), b.grad)
        if x.grad is not None:
            size = linear.backward_data_work(p.chunk, self.in_features, self.out_features)
            p.backward(linear.backward_data, y.grad, w.data, x.grad, p.buffer((size,)))
        return y
