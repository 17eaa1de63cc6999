"""What a layer of one's own must do, and what it is told, before anything runs, if it does not."""

import re
from pathlib import Path

import numpy as np
import pytest
from nets import some_batch, within
from test_gradients import check_gradients

from corenet import nn
from corenet.engine import initial_state, make_plan
from corenet.errors import LayerError, ShapeError
from corenet.nn.loss import CrossEntropy

PAGE = Path(__file__).parents[1] / "docs" / "own_layers.md"


class Gated(nn.Layer):
    """x · conv(x): x is read twice."""

    def __init__(self, conv, fans_out=True):
        self.conv, self.fans_out = conv, fans_out

    def plan(self, p, x):
        a, b = p.fan_out(x, 2) if self.fans_out else (x, x)
        a = p.child("conv", self.conv, a)
        y = p.activation(a.shape)
        p.forward(self.forward, a.data, b.data, y.data)
        p.backward(self.backward, a.data, b.data, y.grad, a.grad, b.grad)
        return y

    def forward(self, n, a, b, y):
        y[:n] = a[:n] * b[:n]

    def backward(self, n, a, b, dy, da, db):
        da[:n] = dy[:n] * b[:n]
        if db is not None:
            db[:n] = dy[:n] * a[:n]


class Twice(nn.Layer):
    """Two layers of one input, of which the first's output is handed on."""

    def __init__(self, first, second):
        self.first, self.second = first, second

    def plan(self, p, x):
        a, _ = p.child("first", self.first, x), p.child("second", self.second, x)
        y = p.activation(a.shape)
        p.forward(copy, a.data, y.data)
        p.share_gradient(a, y)
        return y


class Odd(nn.Layer):
    """A copy of its input; how it is planned, a function of the planner, its input and its output says."""

    def __init__(self, how):
        self.how = how

    def plan(self, p, x):
        y = p.activation(x.shape)
        return self.how(p, x, y)


def copy(n, x, y):
    y[:n] = x[:n]


def good(p, x, y):
    p.forward(copy, x.data, y.data)
    p.backward(copy, y.grad, x.grad)
    return y


def plan(layer, loss=True):
    net = nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), layer, nn.Flatten())
    return make_plan(net, (4, 4, 1), 2, loss=CrossEntropy() if loss else None)


def refusal(layer, kind=LayerError):
    with pytest.raises(kind) as caught:
        plan(layer)
    return str(caught.value)


def test_a_layer_that_does_all_of_it_is_planned():
    plan(Odd(good))
    plan(Odd(good), loss=False)


def test_an_input_read_twice_is_fanned_out():
    check_gradients(within(nn.Conv2d(3, 2, 3, padding=1), Gated(nn.Conv2d(2, 2, 1))), [3, 1], some_batch(4))


@pytest.mark.parametrize(
    "twice, layers",
    [
        (Gated(nn.Conv2d(2, 2, 1), fans_out=False), ["layer 1.conv (Conv2d)", "layer 1 (Gated)"]),
        (
            Twice(nn.ReLU(), nn.Sequential(nn.Identity(), nn.Tanh())),
            ["layer 1.first (ReLU)", "layer 1.second.1 (Tanh)"],
        ),
    ],
)
def test_an_input_read_twice_without_fan_out_is_refused(twice, layers):
    said = refusal(twice)
    assert all(layer in said for layer in layers)
    assert "expected one layer that writes the gradient of a tensor" in said and "p.fan_out(x, 2)" in said


@pytest.mark.skipif(not PAGE.is_file(), reason="not in a checkout")
def test_the_layers_in_the_documentation_are_right():
    found = {"nn": nn, "np": np}
    for code in re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL):
        exec(code, found)
    gate = found["Gate"](nn.Sequential(nn.Conv2d(3, 3, 1), nn.Sigmoid()))
    check_gradients(within(found["Swish"](0.7), gate, found["Clip"](0.3)), [3, 1], some_batch(4))


def test_images_need_no_gradient_and_may_be_read_twice():
    make_plan(nn.Sequential(Twice(nn.ReLU(), nn.Conv2d(1, 1, 1)), nn.Flatten()), (4, 4, 1), 2, loss=CrossEntropy())


def test_a_part_of_a_fan_out_that_nobody_reads_is_refused():
    assert refusal(Odd(lambda p, x, y: good(p, p.fan_out(x, 2)[0], y))).startswith("layer 1 (Odd): expected a backward")


def no_forward(p, x, y):
    p.backward(copy, y.grad, x.grad)
    return y


def no_backward(p, x, y):
    p.forward(copy, x.data, y.data)
    return y


def no_gradient_of_its_parameter(p, x, y):
    p.parameter("w", (2,), nn.init.ones())
    return good(p, x, y)


def two_parameters_of_a_name(p, x, y):
    p.parameter("w", (2,), nn.init.ones())
    p.parameter("w", (2,), nn.init.ones())
    return y


def two_layers_of_a_name(p, x, y):
    return p.child("a", nn.ReLU(), p.child("a", nn.ReLU(), x))


def tensor_for_data(p, x, y):
    p.forward(copy, x, y)
    return y


def parameter_for_data(p, x, y):
    p.backward(copy, y.grad, p.parameter("w", (2,), nn.init.ones()))
    return y


@pytest.mark.parametrize(
    "how, message",
    [
        (no_forward, ": expected a forward step that writes its output, got none. p.forward("),
        (no_backward, ": expected a backward step that writes the gradient of its input"),
        (no_gradient_of_its_parameter, ": expected a backward step that writes the gradient of parameter '1.w'"),
        (two_parameters_of_a_name, ", name 'w': expected parameters and layers of different names, got the same"),
        (two_layers_of_a_name, ", name 'a': expected parameters and layers of different names, got the same"),
        (tensor_for_data, ", forward: expected arrays and plain values, got a Tensor. Give its .data, or its .grad"),
        (parameter_for_data, ", backward: expected arrays and plain values, got a Parameter. Give its .data"),
        (lambda p, x, y: None, ", plan: expected the output to be returned, a tensor, got None. return y"),
        (lambda p, x, y: y.data, ", plan: expected the output to be returned, a tensor, got <corenet"),
        (
            lambda p, x, y: p.parameter("w", (2,), "he_normal"),
            ", parameter 'w': expected a function init(generator, shape), such as nn.init.he_normal(), got 'he_normal'",
        ),
        (
            lambda p, x, y: p.parameter("w", 3, nn.init.ones()),
            ", shape: expected a tuple of sizes, such as (3, 8), got 3",
        ),
        (lambda p, x, y: p.activation((3, 1.5)), ", shape: expected a tuple of sizes, such as (3, 8), got (3, 1.5)"),
        (lambda p, x, y: p.buffer(4), ", shape: expected a tuple of sizes, such as (3, 8), got 4"),
    ],
)
def test_a_layer_is_told_what_it_left_out_or_mistook(how, message):
    assert refusal(Odd(how)).startswith("layer 1 (Odd)" + message)


@pytest.mark.parametrize(
    "init, got",
    [
        (lambda shape: np.ones(shape), "TypeError: "),
        (lambda generator, shape: np.ones(3), "ValueError: could not broadcast"),
        (lambda generator, shape: "ones", "ValueError: could not convert string"),
    ],
)
def test_an_init_that_does_not_fill_its_parameter_is_named(init, got):
    def how(p, x, y):
        w = p.parameter("w", (2,), init)
        p.backward(copy, y.grad, w.grad)
        return good(p, x, y)

    with pytest.raises(
        LayerError, match=r"parameter '1\.w': expected values of shape \(2,\) from init\(generator, sh"
    ) as caught:
        initial_state(plan(Odd(how)), 0)
    assert f"got {got}" in str(caught.value)


def test_an_initializer_for_more_axes_still_says_so_itself():
    def how(p, x, y):
        w = p.parameter("w", (2,), nn.init.he_normal())
        p.backward(copy, y.grad, w.grad)
        return good(p, x, y)

    with pytest.raises(ShapeError, match="he_normal: expected a weight"):
        initial_state(plan(Odd(how)), 0)
