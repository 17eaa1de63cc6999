"""What a user reads who gives a layer or net what it cannot take: the layer, its place, expected, got, and the fix."""

import json

import numpy as np
import pytest
from nets import ALL, shape_of

from corenet import nn
from corenet.engine import make_plan
from corenet.errors import ConfigError, ShapeError
from corenet.nn import (
    AvgPool2d,
    AvgPool3d,
    BatchNorm1d,
    BatchNorm2d,
    BatchNorm3d,
    Conv1d,
    Conv2d,
    Conv3d,
    ConvTranspose2d,
    CrossEntropy,
    Dropout,
    Flatten,
    Linear,
    MaxPool1d,
    MaxPool2d,
    MaxPool3d,
    ReLU,
    Reshape,
    Residual,
    Sequential,
    build,
    describe,
)
from corenet.nn.description import LAYERS
from corenet.nn.loss import get_loss

AT_LEAST_1 = "expected an integer of at least 1"
ARGUMENTS = [
    (lambda: Conv2d(0, 8, 3), f"Conv2d(in_channels=…): {AT_LEAST_1}, got 0"),
    (lambda: Conv2d(3, 8.0, 3), f"Conv2d(out_channels=…): {AT_LEAST_1}, got 8.0"),
    (lambda: Conv2d(True, 8, 3), f"Conv2d(in_channels=…): {AT_LEAST_1}, got True"),
    (lambda: Conv2d(3, 8, "3"), f"Conv2d(kernel_size=…): {AT_LEAST_1}, got '3'"),
    (lambda: Conv2d(3, 8, (3, 0)), f"Conv2d(kernel_size=…): {AT_LEAST_1}, got 0"),
    (
        lambda: Conv2d(3, 8, (3, 3, 3)),
        "Conv2d(kernel_size=…): expected an integer or 2 of them, got (3, 3, 3)",
    ),
    (lambda: Conv2d(3, 8, 3, stride=0), f"Conv2d(stride=…): {AT_LEAST_1}, got 0"),
    (lambda: Conv2d(3, 8, 3, padding=-1), "Conv2d(padding=…): expected an integer of at least 0, got -1"),
    (lambda: Conv2d(3, 8, 3, padding="full"), 'Conv2d(padding=…): expected integers, "same" or "valid", got \'full\''),
    (
        lambda: Conv2d(3, 8, 3, stride=(1, 2), padding="same"),
        'Conv2d(padding="same"): expected stride 1, got (1, 2). Give numbers',
    ),
    (lambda: Conv2d(3, 8, 3, dilation=0), f"Conv2d(dilation=…): {AT_LEAST_1}, got 0"),
    (lambda: Conv2d(3, 8, 3, groups=0), f"Conv2d(groups=…): {AT_LEAST_1}, got 0"),
    (lambda: Conv2d(3, 8, 3, groups=2), "Conv2d(groups=…): expected a divisor of in_channels=3, got 2"),
    (lambda: Conv2d(3, 8, 3, groups=3), "Conv2d(groups=…): expected a divisor of out_channels=8, got 3"),
    (lambda: Conv1d(3, 8, (3, 3)), "Conv1d(kernel_size=…): expected an integer, got (3, 3)"),
    (lambda: Conv3d(3, 8, (3, 3)), "Conv3d(kernel_size=…): expected an integer or 3 of them, got (3, 3)"),
    (lambda: ConvTranspose2d(3, 8, 3, padding="same"), "ConvTranspose2d(padding=…): expected integers, got 'same'"),
    (
        lambda: ConvTranspose2d(3, 8, 3, 2, output_padding=(1, 2)),
        "ConvTranspose2d(output_padding=…): expected smaller than stride or dilation, got (1, 2)",
    ),
    (lambda: Linear(0, 3), f"Linear(in_features=…): {AT_LEAST_1}, got 0"),
    (lambda: Linear(3, None), f"Linear(out_features=…): {AT_LEAST_1}, got None"),
    (lambda: MaxPool2d(2, padding=2), "MaxPool2d(padding=…): expected at most half of kernel_size, got 2"),
    (lambda: AvgPool2d(3, padding=(1, 2)), "AvgPool2d(padding=…): expected at most half of kernel_size, got (1, 2)"),
    (lambda: AvgPool2d(3, stride=-1), f"AvgPool2d(stride=…): {AT_LEAST_1}, got -1"),
    (lambda: AvgPool3d((2, 3)), "AvgPool3d(kernel_size=…): expected an integer or 3 of them, got (2, 3)"),
    (lambda: MaxPool1d(3, padding=2), "MaxPool1d(padding=…): expected at most half of kernel_size, got 2"),
    (lambda: BatchNorm1d(0), f"BatchNorm1d(num_features=…): {AT_LEAST_1}, got 0"),
    (lambda: Dropout(1), "Dropout(p=…): expected a probability, 0 <= p < 1, got 1"),
    (lambda: Dropout(-0.1), "Dropout(p=…): expected a probability, 0 <= p < 1, got -0.1"),
    (lambda: Dropout(float("nan")), "Dropout(p=…): expected a probability, 0 <= p < 1, got nan"),
    (lambda: Dropout("half"), "Dropout(p=…): expected a probability, 0 <= p < 1, got 'half'"),
    (lambda: Dropout(True), "Dropout(p=…): expected a probability, 0 <= p < 1, got True"),
    (lambda: BatchNorm2d(0), f"BatchNorm2d(num_features=…): {AT_LEAST_1}, got 0"),
    (lambda: BatchNorm2d(3, eps=0), "BatchNorm2d(eps=…): expected a number above 0, got 0"),
    (lambda: BatchNorm2d(3, eps="small"), "BatchNorm2d(eps=…): expected a number above 0, got 'small'"),
    (lambda: BatchNorm2d(3, eps=float("inf")), "BatchNorm2d(eps=…): expected a number above 0, got inf"),
    (lambda: BatchNorm2d(3, momentum=None), "BatchNorm2d(momentum=…): expected a number from 0 to 1, got None"),
    (lambda: BatchNorm2d(3, momentum=2), "BatchNorm2d(momentum=…): expected a number from 0 to 1, got 2"),
    (lambda: Sequential(ReLU(), None), "Sequential, part 1: expected a layer, got None"),
    (lambda: Sequential([ReLU()]), "Sequential, part 0: expected a layer, got [ReLU()]. Write Sequential(*layers)"),
    (lambda: Residual(ReLU(), 3), "Residual, part 1: expected a layer, got 3"),
    (
        lambda: get_loss("hinge"),
        "loss: expected a loss of corenet.nn, or one of 'cross_entropy', 'bce', 'mse', 'l1', 'huber', got 'hinge'",
    ),
]


@pytest.mark.parametrize("make, message", ARGUMENTS, ids=[message for _, message in ARGUMENTS])
def test_arguments_that_a_layer_cannot_take(make, message):
    with pytest.raises(ConfigError) as caught:
        make()
    assert str(caught.value) == message


def test_a_class_in_the_place_of_a_layer():
    with pytest.raises(ConfigError, match=r"Sequential, part 1: expected a layer, got <class .*ReLU'>\. Call it: ReLU"):
        Sequential(ReLU(), ReLU)


def test_numbers_of_numpy_are_numbers():
    layers = [
        Conv2d(np.int64(3), np.int32(8), (np.uint8(3), 2), stride=np.int16(2)),
        Linear(np.prod((4, 4, 3)), 3),
        Dropout(np.float32(0.5)),
        BatchNorm2d(np.int64(3), np.float32(0.25), momentum=np.float64(0.5), sync=np.bool_(True)),
        MaxPool2d(np.int64(2)),
    ]
    assert [json.loads(json.dumps(describe(layer))) for layer in layers] == [
        {"type": "Conv2d", "in_channels": 3, "out_channels": 8, "kernel_size": [3, 2], "stride": [2, 2],
         "padding": [0, 0], "dilation": [1, 1], "groups": 1, "bias": True,
         "algorithm": "auto", "weight_init": "torch_default", "bias_init": None},
        {"type": "Linear", "in_features": 48, "out_features": 3, "bias": True,
         "weight_init": "torch_default", "bias_init": None},
        {"type": "Dropout", "p": 0.5},
        {"type": "BatchNorm2d", "num_features": 3, "eps": 0.25, "momentum": 0.5, "sync": True},
        {"type": "MaxPool2d", "kernel_size": [2, 2], "stride": [2, 2], "padding": [0, 0], "ceil_mode": False},
    ]  # fmt: skip


GEOMETRIES = [
    (
        [Conv2d(1, 2, 3), Conv2d(3, 8, 3)],
        "layer 1 (Conv2d): expected 3 input channels (in_channels), got 2, from an input of shape (7, 6, 2). "
        "Set in_channels=2",
    ),
    (
        [Conv2d(1, 8, (10, 3), padding=(0, 1))],
        "layer 0 (Conv2d): expected an image of at least 10×1 pixels, got 9×8. "
        "Use a smaller window, more padding, or fewer pooling layers before it",
    ),
    (
        [MaxPool2d(2), MaxPool2d(2), MaxPool2d(2), AvgPool2d(2)],
        "layer 3 (AvgPool2d): expected an image of at least 2×2 pixels, got 1×1. "
        "Use a smaller window, more padding, or fewer pooling layers before it",
    ),
    (
        [Flatten(), MaxPool2d(2)],
        "layer 1 (MaxPool2d): expected samples of shape (height, width, channels), got input of shape (72,). "
        "Place it before Flatten and Linear, or take the layer of other dimensions",
    ),
    (
        [Conv3d(1, 2, 1)],
        "layer 0 (Conv3d): expected samples of shape (depth, height, width, channels), got input of shape (9, 8, 1). "
        "Data sets hold images: put Reshape(depth, height, width, channels) before it, or take the layer of other "
        "dimensions",
    ),
    (
        [Conv1d(3, 2, 1)],
        "layer 0 (Conv1d): expected samples of shape (length, channels), got input of shape (9, 8, 1). "
        "Data sets hold images: put Reshape(9, 8) before it, or take the layer of other dimensions",
    ),
    (
        [ReLU(), Conv2d(1, 2, (3, 2), dilation=(5, 1))],
        "layer 1 (Conv2d): expected an image of at least 11×2 pixels, got 9×8. "
        "Use a smaller window, more padding, or fewer pooling layers before it",
    ),
    (
        [Reshape(9, 8), Conv1d(8, 2, 5, dilation=3, padding=1)],
        "layer 1 (Conv1d): expected a sequence of length 11 or more, got 9. "
        "Use a smaller window, more padding, or fewer pooling layers before it",
    ),
    (
        [Reshape(2, 6, 3, 2), MaxPool3d((1, 3, 4))],
        "layer 1 (MaxPool3d): expected a volume of at least 1×3×4 voxels, got 2×6×3. "
        "Use a smaller window, more padding, or fewer pooling layers before it",
    ),
    (
        [ConvTranspose2d(1, 2, 2, padding=5)],
        "layer 0 (ConvTranspose2d): expected an output of at least one pixel, got 0×-1. Use less padding",
    ),
    (
        [ConvTranspose2d(2, 4, 2)],
        "layer 0 (ConvTranspose2d): expected 2 input channels (in_channels), got 1, from an input of shape (9, 8, 1). "
        "Set in_channels=1",
    ),
    (
        [BatchNorm1d(1)],
        "layer 0 (BatchNorm1d): expected samples of shape (channels) or (length, channels), got input of shape "
        "(9, 8, 1). Data sets hold images: put Reshape(9, 8) before it, or Flatten(); or use BatchNorm2d",
    ),
    (
        [BatchNorm3d(1)],
        "layer 0 (BatchNorm3d): expected samples of shape (depth, height, width, channels), got input of shape "
        "(9, 8, 1). Data sets hold images: put Reshape(depth, height, width, channels) before it; or use BatchNorm2d",
    ),
    (
        [Flatten(), BatchNorm3d(72)],
        "layer 1 (BatchNorm3d): expected samples of shape (depth, height, width, channels), got input of shape (72,). "
        "Use BatchNorm1d",
    ),
    (
        [Linear(10, 3)],
        "layer 0 (Linear): expected vectors of 10 features (in_features), got input of shape (9, 8, 1). "
        "Set in_features=72, after a Flatten layer",
    ),
    (
        [ReLU(), Flatten(), Linear(10, 3)],
        "layer 2 (Linear): expected vectors of 10 features (in_features), got input of shape (72,). Set in_features=72",
    ),
    ([BatchNorm2d(4)], "layer 0 (BatchNorm2d): expected 4 channels (num_features), got 1. Set num_features=1"),
    (
        [Residual(Conv2d(1, 4, 3, padding=1))],
        "layer 0 (Residual): expected body and shortcut of one shape; the body gives (9, 8, 4), got (9, 8, 1) from the "
        "input. Give a shortcut with the same stride and channels, such as a 1×1 Conv2d",
    ),
    (
        [ReLU(), Residual(Sequential(ReLU(), Conv2d(3, 1, 3)))],
        "layer 1.body.1 (Conv2d): expected 3 input channels (in_channels), got 1, from an input of shape (9, 8, 1). "
        "Set in_channels=1",
    ),
    (
        [Residual(ReLU(), Residual(ReLU(), BatchNorm2d(2)))],
        "layer 0.shortcut.shortcut (BatchNorm2d): expected 2 channels (num_features), got 1. Set num_features=1",
    ),
    (
        [Conv2d(1, 1, 3)],
        "output of the net: expected an output of shape (…, classes), at least 2 classes, got output of shape "
        "(7, 6, 1). End the net with Flatten and Linear(…, classes)",
    ),
    (
        [Flatten()],
        "output of the net: expected a layer between images and loss, got none. Add Linear(…, outputs)",
    ),
]  # fmt: skip


@pytest.mark.parametrize("layers, message", GEOMETRIES, ids=[message[:40] for _, message in GEOMETRIES])
def test_layers_that_do_not_fit(layers, message):
    with pytest.raises(ShapeError) as caught:
        make_plan(Sequential(*layers), (9, 8, 1), 2, loss=CrossEntropy())
    assert str(caught.value) == message


def test_a_layer_may_be_the_whole_net():
    with pytest.raises(ShapeError) as caught:
        make_plan(Conv2d(3, 8, 3), (9, 8, 1), 2, loss=CrossEntropy())
    assert str(caught.value).startswith("net (Conv2d): expected 3 input channels (in_channels), got 1")
    assert make_plan(Linear(4, 3), (4,), 2, loss=CrossEntropy()).output_shape == (3,)


# Nets as data.


@pytest.mark.parametrize("label", ALL)
def test_a_net_survives_being_described(label):
    description = json.loads(json.dumps(describe(ALL[label])))
    again = build(description)
    assert describe(again) == describe(ALL[label]) and repr(again) == repr(ALL[label])
    plans = [make_plan(net, shape_of(label), 2, loss=CrossEntropy()) for net in (again, ALL[label])]
    assert plans[0].layout == plans[1].layout
    assert [step.operation for step in plans[0].backward] == [step.operation for step in plans[1].backward]


NAMES = ", ".join(LAYERS)
DESCRIPTIONS = [
    ({"type": "Conv4d"}, f"net description: expected a layer of {NAMES}, got 'Conv4d'"),
    ([], f"net description: expected a layer of {NAMES}, got []"),
    ({"type": "Sequential"}, "net description, Sequential: expected an entry 'layers', got none"),
    ({"type": "Sequential", "layers": ["x"]}, "Sequential, part 0: expected a layer, got 'x'"),
    ({"type": "Dropout", "p": "x"}, "Dropout(p=…): expected a probability, 0 <= p < 1, got 'x'"),
    ({"type": "BatchNorm2d", "num_features": 3, "eps": []}, "BatchNorm2d(eps=…): expected a number above 0, got []"),
]


@pytest.mark.parametrize("description, message", DESCRIPTIONS, ids=[message[:40] for _, message in DESCRIPTIONS])
def test_descriptions_of_no_net(description, message):
    with pytest.raises(ConfigError) as caught:
        build(description)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    "description", [{"type": "Conv2d", "in_channels": 1}, {"type": "ReLU", "colour": 3}, {"type": "Linear", "x": {}}]
)
def test_descriptions_with_other_arguments(description):
    with pytest.raises(ConfigError, match="net description"):
        build(description)


def test_weights_in_two_places_are_refused_and_layers_without_may_return():
    twice = nn.Linear(4, 4)
    with pytest.raises(ShapeError, match=r"layer 1 \(Linear\).*the same object in two"):
        make_plan(nn.Sequential(twice, twice), (4,), 2)
    relu = nn.ReLU()
    make_plan(nn.Sequential(relu, nn.Linear(4, 4), relu), (4,), 2)


def test_channels_first_images_get_the_right_advice():
    with pytest.raises(ShapeError, match=r"transpose\(0, 2, 3, 1\)"):
        make_plan(nn.Sequential(nn.Conv2d(1, 4, 3)), (1, 8, 8), 2)
