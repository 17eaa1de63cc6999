"""The models: how many parameters, which shapes, and what a wrong name is answered with.

That they compute what their sources' nets compute is in test_torch.py.
"""

import numpy as np
import pytest
from nets import Chunk, some_batch

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
    "cifar10_quick": 116_906,
    "vgg_small": 403_306,
    "resnet20": 272_474,
}


@pytest.mark.parametrize("name", models.MODELS)
def test_parameters_and_output(name):
    plan = make_plan(models.get(name), models.INPUT_SHAPES[name], 2, loss=CrossEntropy())
    assert plan.layout.parameter_count() == PARAMETERS[name]
    assert plan.output_shape == (10,)


@pytest.mark.skipif(numba_problem() is not None, reason="Numba is not installed")
@pytest.mark.parametrize("name", models.MODELS)
def test_first_loss_is_that_of_guessing_and_every_parameter_has_a_gradient(name):
    shape = models.INPUT_SHAPES[name]
    plan = make_plan(models.get(name), shape, 8, loss=CrossEntropy())
    chunk = Chunk(plan, select("numba"))
    images, labels = some_batch(8, shape, 10)
    loss = chunk.run(images.astype(np.float32), labels) / 8
    assert 1.5 < loss < 4  # log 10 = 2.3
    found = chunk.measured() | chunk.products(8)
    assert set(found) == set(plan.layout.arrays(chunk.state))
    for key, gradient in found.items():
        assert np.isfinite(gradient).all() and gradient.any(), key


def test_a_wrong_name_is_answered_with_the_right_ones():
    with pytest.raises(ConfigError) as caught:
        models.get("lenet")
    assert str(caught.value) == (
        "model: expected one of digits_cnn, lenet5, mnist_example, keras_mnist, cifar10_quick, vgg_small, resnet20, "
        "got 'lenet'. Did you mean 'lenet5'?"
    )
    with pytest.raises(ConfigError, match=r"got 'x'$"):
        models.get("x")
