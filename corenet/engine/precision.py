"""precision="bf16": matrix products take operands of bfloat16, once all other steps are decided.

Replaced are the direct convolution, the dense layer, and the gradients of both (`kernels/bfloat16.py` says what is
rounded). What is faster in float32, or would lose too much, stays as it is: Winograd's convolution, which makes a
quarter of the products; gradients that go from one winner of a max-pool to the next; convolutions of grey images to few
channels, whose lines are too short for pairs; depthwise convolutions, which have no products of matrices.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ..kernels import bf16_conv, bf16_linear, conv, linear
from ..kernels.operation import Operation
from ..kernels.tile import LANES
from .buffer import Buffer
from .plan import Meet, Product, Step


def products_in_bf16(steps: list[Step | Meet]) -> list[Step | Meet]:
    """The steps, with those that multiply matrices replaced."""
    return [_replaced(step) if isinstance(step, Step) else step for step in steps]


def batch_products_in_bf16(products: list[Product]) -> list[Product]:
    """The same for weight gradients made once per batch."""
    return [
        replace(product, operation=bf16_linear.backward_weights)
        if product.operation is linear.backward_weights
        else product
        for product in products
    ]


def _replaced(step: Step) -> Step:
    if not isinstance(step.operation, Operation) or step.operation.name not in _IN_BF16 or _is_grey(step):
        return step
    operation, with_scratch = _IN_BF16[step.operation.name]
    return replace(step, operation=operation, args=with_scratch(*step.args))


def _is_grey(step: Step) -> bool:
    """Whether this is the convolution of an image of one channel to no more than one vector of them."""
    return step.operation is conv.forward and step.args[0].shape[-1] == 1 and step.args[1].shape[-1] <= LANES


def _halves(size: int) -> Buffer:
    """Scratch for that many bfloat16."""
    return Buffer((size,), "uint16", "arena")


def _conv_forward(x: Buffer, w: Buffer, *how: Any) -> tuple:
    return x, w, *how, _halves(bf16_conv.forward_work(x.shape, w.shape))


def _conv_backward_weights(x: Buffer, dy: Buffer, *how: Any) -> tuple:
    return x, dy, *how, _halves(bf16_conv.backward_weights_work(x.shape, dy.shape))


def _conv_backward_data(dy: Buffer, w: Buffer, dx: Buffer, *how: Any) -> tuple:
    stride, padding, dilation, groups, _ = how
    size = bf16_conv.backward_data_work(dx.shape, dy.shape, w.shape, stride, padding, dilation)
    return dy, w, dx, stride, padding, dilation, groups, _halves(size)


def _linear_forward(x: Buffer, w: Buffer, b: Buffer, y: Buffer) -> tuple:
    return x, w, b, y, _halves(x.shape[0] * x.shape[1])


def _linear_backward_data(dy: Buffer, w: Buffer, dx: Buffer, _: Buffer) -> tuple:
    inputs, outputs = w.shape
    return dy, w, dx, _halves(bf16_linear.backward_data_work(dy.shape[0], inputs, outputs))


_IN_BF16: dict[str, tuple[Operation, Callable[..., tuple]]] = {
    conv.forward.name: (bf16_conv.forward, _conv_forward),
    conv.backward_weights.name: (bf16_conv.backward_weights, _conv_backward_weights),
    conv.backward_data.name: (bf16_conv.backward_data, _conv_backward_data),
    linear.forward.name: (bf16_linear.forward, _linear_forward),
    linear.backward_data.name: (bf16_linear.backward_data, _linear_backward_data),
}
