"""Small nets with the layers that need no weights of their own, or normalise: part of the table in `nets.py`."""

from collections.abc import Callable

from corenet.nn import (
    ELU,
    GELU,
    AdaptiveAvgPool2d,
    Conv2d,
    Dropout2d,
    Flatten,
    GlobalAvgPool2d,
    GlobalMaxPool2d,
    GroupNorm,
    Layer,
    LayerNorm,
    LeakyReLU,
    Linear,
    LocalResponseNorm,
    Reshape,
    Residual,
    Sequential,
    Sigmoid,
    SiLU,
    Softmax,
    Tanh,
    Upsample,
    ZeroPad2d,
)


def more_nets(within: Callable[..., Layer], ended: Callable[..., Layer]) -> dict[str, dict[str, Layer]]:
    """Nets by layer; `within` puts layers behind a convolution with 3 channels (4, 4, 3), `ended` behind the images."""
    return {
        "LeakyReLU": {"default": within(LeakyReLU()), "steep": within(LeakyReLU(-0.6)), "first": ended(LeakyReLU())},
        "ELU": {"default": within(ELU()), "steep": within(ELU(1.7)), "first layer": ended(ELU())},
        "GELU": {"exact": within(GELU()), "tanh": within(GELU("tanh")), "first layer": ended(GELU())},
        "SiLU": {"between": within(SiLU()), "of a vector": within(Flatten(), Linear(48, 6), SiLU())},
        "Tanh": {"between": within(Tanh()), "first layer": ended(Tanh())},
        "Sigmoid": {"between": within(Sigmoid()), "of a vector": within(Flatten(), Linear(48, 6), Sigmoid())},
        "Softmax": {
            "of channels": within(Softmax()),
            "of a vector": within(Flatten(), Linear(48, 6), Softmax()),
            "first layer": ended(Softmax()),
        },
        "GroupNorm": {
            "two groups": within(Conv2d(3, 6, 2), GroupNorm(2, 6, eps=1e-2), Conv2d(6, 2, 2)),
            "one group": within(GroupNorm(1, 3)),
            "each channel": within(GroupNorm(3, 3, affine=False)),
            "of a vector": within(Flatten(), Linear(48, 6), GroupNorm(2, 6)),
            "first layer": ended(GroupNorm(1, 2)),
            "first layer, without parameters": ended(GroupNorm(1, 2, affine=False)),
        },
        "LayerNorm": {
            "channels": within(LayerNorm(3, eps=1e-2)),
            "rows": within(LayerNorm((4, 3))),
            "whole images": within(LayerNorm((4, 4, 3)), Conv2d(3, 2, 2)),
            "of a vector": within(Flatten(), Linear(48, 6), LayerNorm(6, elementwise_affine=False)),
            "first layer": ended(LayerNorm((4, 2))),
        },
        "LocalResponseNorm": {
            "odd": within(Conv2d(3, 7, 2), LocalResponseNorm(5, alpha=0.5), Conv2d(7, 2, 2)),
            "even": within(LocalResponseNorm(2, 0.7, 0.6, 2.0)),
            "wider than the channels": within(LocalResponseNorm(9, alpha=1.0)),
            "first layer": ended(LocalResponseNorm(3)),
        },
        "Dropout2d": {
            "of images": within(Dropout2d(0.4)),
            "twice": within(Dropout2d(0.3), Conv2d(3, 9, 2), Dropout2d(0.5)),
            "nothing dropped": within(Dropout2d(0)),
            "first layer": ended(Dropout2d(0.3)),
        },
        "AdaptiveAvgPool2d": {
            "overlapping": within(AdaptiveAvgPool2d(3)),
            "one row, enlarged": within(AdaptiveAvgPool2d((1, 6))),
            "first layer": ended(AdaptiveAvgPool2d(2)),
        },
        "GlobalAvgPool2d": {"between": within(GlobalAvgPool2d()), "first layer": ended(GlobalAvgPool2d())},
        "GlobalMaxPool2d": {"between": within(GlobalMaxPool2d()), "first layer": ended(GlobalMaxPool2d())},
        "Upsample": {
            "nearest": within(Upsample((2, 3)), Conv2d(3, 2, 3)),
            "bilinear": within(Upsample((3, 2), "bilinear"), Conv2d(3, 2, 3)),
            "bilinear, corners": within(Upsample(2, "bilinear", align_corners=True), Conv2d(3, 2, 3)),
            "first layer": ended(Upsample(2)),
        },
        "ZeroPad2d": {
            "every side": within(ZeroPad2d((1, 2, 3, 0)), Conv2d(3, 2, 3)),
            "as much": within(Residual(Sequential(Conv2d(3, 3, 3), ZeroPad2d(1)))),
            "first layer": ended(ZeroPad2d(1)),
        },
        "Reshape": {
            "of images": within(Reshape(2, 4, 6), Conv2d(6, 2, 2)),
            "of a vector": within(Flatten(), Linear(48, 12), Reshape(3, 2, 2), Conv2d(2, 3, 2)),
            "inside a residual": within(Residual(Reshape(8, 6), Sequential(Conv2d(3, 3, 1), Reshape(8, 6)))),
        },
    }  # fmt: skip
