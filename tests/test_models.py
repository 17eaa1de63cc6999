"""The models: how many parameters, which shapes, and what a wrong name is answered with.

That they compute what their sources' nets compute is in test_torch.py.
"""

import numpy as np
import pytest
from nets import Chunk

from corenet import models
from corenet.engine import make_plan
from corenet.errors import ConfigError
from corenet.kernels.backend import numba_problem, select
from corenet.nn import CrossEntropy

PARAMETERS = {
    "digits_cnn": 38_282,  # (9·1+1)·16 + (9·16+1)·32 + 513·64 + 65·10
    "lenet5": 61_706,
    "mnist_example": 1_199_882,
    "keras_mnist": 34_826,
    "simple_mnist": 21_840,  # 26·10 + 251·20 + 321·50 + 51·10
    "cifar10_quick": 116_906,
    "simple_cifar10": 176_034,  # 148·10 + 491·20 + 1281·120 + 121·84 + 85·10
    "alexnet_cifar": 1_068_298 + (8 * 8 - 6 * 6) * 64 * 384,  # the tutorial's number, of images cropped to 24×24
    "vgg_small": 403_306,
    "resnet20": 272_474,
    "resnet32": 464_154 + 2752,  # as often counted, with shortcuts that pad: 0.27, 0.46, 0.66, 0.85 and 1.7 million;
    "resnet44": 658_586 + 2752,  # two projections and their norms: 16·32 + 2·32 + 32·64 + 2·64
    "resnet56": 853_018 + 2752,
    "resnet110": 1_727_962 + 2752,
    "inception_small": 1_649_402 + 3424,  # of the paper's table 1, which leaves batch norm out: 2·1712 channels
    "unet_small": 116_770,  # 9·(1·16 + 16·16 + 16·32 + 32·32 + 32·64 + 64·64) + 4·(64·32 + 32·16) up and
    # 9·(64·32 + 32·32 + 32·16 + 16·16) + 16·2, and a bias for each of 2·(16 + 32 + 64) + 32 + 16 + 2·(32 + 16) + 2
    "cnn1d": 72_416,  # 25·20 + 701·100 + 2·100 + 101·16
    "cnn2d": 626_866,  # (25·200+1)·50 + (25·50+1)·100 + 2501·100 + 101·16
    "cnn3d": 1_804_404,  # 601·32 + 2·32 + (400·32+1)·64 + 2·64 + 3201·300 + 2·300 + 301·16
}
SPECTRAL = {"cnn1d", "cnn2d", "cnn3d"}


@pytest.mark.parametrize("name", models.MODELS)
def test_parameters_and_output(name):
    plan = make_plan(models.get(name), models.INPUT_SHAPES[name], 2)
    assert plan.layout.parameter_count() == PARAMETERS[name]
    assert plan.output_shape == ((64, 64, 2) if name == "unet_small" else (16,) if name in SPECTRAL else (10,))
    assert models.classifies(name) == (name != "unet_small")


@pytest.mark.parametrize(
    "net, shape, output",
    [
        (models.resnet(8, classes=100), (32, 32, 3), (100,)),
        (models.resnet110(3), (32, 32, 3), (3,)),
        (models.alexnet_cifar(7), (32, 32, 3), (7,)),
        (models.inception_small(classes=5), (28, 28, 3), (5,)),
        (models.unet_small(classes=5, in_channels=3), (12, 20, 3), (12, 20, 5)),
        (models.cnn1d(bands=28, classes=9), (1, 1, 28), (9,)),
        (models.cnn1d(bands=103), (1, 1, 103), (16,)),
        (models.cnn2d(1, 9), (19, 19, 1), (9,)),
        (models.cnn3d(39, classes=9), (19, 19, 39), (9,)),
    ],
)
def test_sizes_may_be_others(net, shape, output):
    assert make_plan(net, shape, 2).output_shape == output


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: models.resnet(21), "resnet(depth=…): expected 6n + 2, such as 20, 32, 44, 56 or 110, got 21"),
        (lambda: models.resnet(2), "resnet(depth=…): expected an integer of at least 8, got 2"),
        (lambda: models.cnn1d(27), "cnn1d(bands=…): expected an integer of at least 28, got 27"),
        (lambda: models.cnn3d(38), "cnn3d(bands=…): expected an integer of at least 39, got 38"),
        (lambda: models.resnet20(0), "Linear(out_features=…): expected an integer of at least 1, got 0"),
    ],
)
def test_sizes_that_cannot_be(make, message):
    with pytest.raises(ConfigError) as caught:
        make()
    assert str(caught.value) == message


@pytest.mark.skipif(numba_problem() is not None, reason="Numba is not installed")
@pytest.mark.parametrize("name", models.MODELS)
def test_first_loss_is_that_of_guessing_and_every_parameter_has_a_gradient(name):
    plan = make_plan(models.get(name), models.INPUT_SHAPES[name], 8, loss=CrossEntropy())
    *each, classes = plan.output_shape  # one label, or one for each pixel
    rng = np.random.default_rng(1)
    images = rng.standard_normal((8, *plan.input_shape)).astype(np.float32)
    labels = rng.integers(0, classes, (8, *each))
    chunk = Chunk(plan, select("numba"))
    loss = chunk.run(images, labels, count=labels.size) / labels.size
    assert 0.7 < loss / np.log(classes) < 1.7
    found = chunk.measured() | chunk.products(8)
    assert set(found) == set(plan.layout.arrays(chunk.state))
    for key, gradient in found.items():
        assert np.isfinite(gradient).all() and gradient.any(), key


@pytest.mark.parametrize("name", ["SimpleMNIST", "SimpleCIFAR10", "CNN1D", "CNN2D", "CNN3D", "ResNet20", "LeNet_5"])
def test_names_may_be_spelled_as_classes_are(name):
    assert repr(models.get(name)) == repr(models.MODELS[models.find(name)]())
    if name not in ("ResNet20", "LeNet_5"):
        assert getattr(models, name) is models.MODELS[models.find(name)]


def test_a_wrong_name_is_answered_with_the_right_ones():
    with pytest.raises(ConfigError) as caught:
        models.get("lenet")
    names = ", ".join(models.MODELS)
    assert str(caught.value) == f"model: expected one of {names}, got 'lenet'. Did you mean 'lenet5'?"
    with pytest.raises(ConfigError, match=r"got 'x'$"):
        models.get("x")
