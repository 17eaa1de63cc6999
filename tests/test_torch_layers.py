"""PyTorch as oracle of activations, normalisation within a sample, resampling and whole channels; and its defaults."""

import inspect

import pytest

torch = pytest.importorskip("torch")

from test_torch import KERNELS, C, check_layer, one_thread  # noqa: E402, F401

from corenet import nn  # noqa: E402

H, W = 7, 6  # of the images in check_layer
LAYERS = {
    "leaky relu": nn.LeakyReLU(),
    "leaky relu, negative slope below 0": nn.LeakyReLU(-0.5),
    "elu": nn.ELU(),
    "elu, alpha": nn.ELU(0.3),
    "gelu": nn.GELU(),
    "gelu, tanh": nn.GELU("tanh"),
    "silu": nn.SiLU(),
    "tanh": nn.Tanh(),
    "sigmoid": nn.Sigmoid(),
    "softmax of channels": nn.Softmax(),
    "softmax of a vector": nn.Sequential(nn.Flatten(), nn.Softmax()),
    "group norm": nn.Sequential(nn.Conv2d(C, 6, 2), nn.GroupNorm(3, 6)),
    "group norm, one group": nn.GroupNorm(1, C, eps=0.1),
    "group norm, each channel": nn.GroupNorm(C, C, affine=False),
    "group norm of a vector": nn.Sequential(nn.Flatten(), nn.GroupNorm(7, H * W * C)),
    "layer norm of channels": nn.LayerNorm(C),
    "layer norm of rows": nn.LayerNorm((W, C), eps=0.1),
    "layer norm of images": nn.LayerNorm((H, W, C)),
    "layer norm of a vector": nn.Sequential(nn.Flatten(), nn.LayerNorm(H * W * C, elementwise_affine=False)),
    "response norm": nn.LocalResponseNorm(2),
    "response norm, strong": nn.Sequential(nn.Conv2d(C, 8, 2), nn.LocalResponseNorm(5, alpha=2.0)),
    "response norm, even": nn.Sequential(nn.Conv2d(C, 8, 2), nn.LocalResponseNorm(4, 1.0, 0.6, 0.5)),
    "response norm, wider than the channels": nn.LocalResponseNorm(11, 1.0, 2.0),
    "dropout of channels": nn.Dropout2d(0.4),
    "adaptive average": nn.AdaptiveAvgPool2d((3, 4)),
    "adaptive average, one": nn.AdaptiveAvgPool2d(1),
    "adaptive average, enlarged": nn.AdaptiveAvgPool2d((10, 6)),
    "global average": nn.GlobalAvgPool2d(),
    "global max": nn.GlobalMaxPool2d(),
    "global max, ties": nn.Sequential(nn.ReLU(), nn.GlobalMaxPool2d()),
    "nearest": nn.Upsample(2),
    "nearest, pair": nn.Upsample((1, 3)),
    "bilinear": nn.Upsample(2, "bilinear"),
    "bilinear, pair": nn.Upsample((3, 5), "bilinear"),
    "bilinear, corners": nn.Upsample((3, 2), "bilinear", align_corners=True),
    "bilinear of one pixel": nn.Sequential(
        nn.AdaptiveAvgPool2d(1), nn.Upsample((2, 1), "bilinear", align_corners=True)
    ),
    "zero padding": nn.ZeroPad2d(2),
    "zero padding, every side": nn.ZeroPad2d((1, 2, 3, 0)),
    "concat": nn.Concat(nn.Conv2d(C, 4, 3, padding=1), nn.Identity(), nn.MaxPool2d(3, 1, padding=1)),
    "concat, nested": nn.Concat(nn.Concat(nn.ReLU(), nn.Conv2d(C, 17, 1)), nn.Conv2d(C, 1, 1)),
    "concat of vectors": nn.Sequential(nn.Flatten(), nn.Concat(nn.Linear(H * W * C, 5), nn.Tanh(), nn.Identity())),
    "identity": nn.Identity(),
    "reshape": nn.Reshape(W, H, C),
    "reshape of a vector": nn.Sequential(nn.Flatten(), nn.Reshape(H * C, W)),
}


@pytest.mark.parametrize("kernels, dtype", KERNELS)
@pytest.mark.parametrize("name", LAYERS)
def test_layer_forward_and_backward(name, kernels, dtype):
    check_layer(name, LAYERS[name], kernels, dtype)


@pytest.mark.parametrize(
    "layer",
    [nn.LeakyReLU, nn.ELU, nn.GELU, nn.GroupNorm, nn.LayerNorm, nn.LocalResponseNorm, nn.Dropout2d,
     nn.AdaptiveAvgPool2d, nn.ZeroPad2d],
)  # fmt: skip
def test_arguments_and_defaults_are_those_of_pytorch(layer):
    theirs = inspect.signature(getattr(torch.nn, layer.__name__)).parameters
    for name, ours in inspect.signature(layer).parameters.items():
        assert name in theirs and ours.default == theirs[name].default, name
