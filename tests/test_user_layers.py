"""A user's own layers: the same bits on any number of workers, in model files, and errors that say what to do."""

import math
from pathlib import Path

import numpy as np
import pytest
import user_layers
from nets import some_batch, within
from test_gradients import check_gradients
from user_layers import Both, Breaks, Forgetful, Miscalled, Returns, Swish

import corenet
from corenet import nn
from corenet.errors import ConfigError, FileError, LayerError
from corenet.parallel.user_layers import where_to_find

EXAMPLE = Path(__file__).parents[1] / "examples" / "own_layer.py"


def net():
    own = Both([nn.Conv2d(2, 3, 2), Swish(0.7), Both.Half()])
    return nn.Sequential(nn.Conv2d(1, 2, 2), own, nn.Residual(Swish()), nn.Flatten(), nn.Linear(48, 3))


def data():
    rng = np.random.default_rng(0)
    return rng.random((50, 6, 6, 1)).astype(np.float32), rng.integers(0, 3, 50)


def test_gradient_is_that_of_the_loss():
    check_gradients(within(Swish(0.7), nn.Conv2d(3, 2, 2), Swish()), [3, 1], some_batch(4))


@pytest.mark.parametrize("kernels", ["auto", "numpy"])
def test_the_same_bits_on_any_workers_and_its_parameters_are_trained(trainer, kernels, tmp_path):
    hashes = set()
    for workers in (1, 2, 3):
        one = trainer(net(), corenet.optim.Adam(0.01), workers=workers, kernels=kernels)
        history = one.fit(data(), epochs=4, batch_size=8, callbacks=())
        hashes.add(one.params_sha256())
    assert len(hashes) == 1
    assert history["loss"][-1] < history["loss"][0] and one.parameters()["1.1.beta"] != np.float32(0.7)
    one.save(tmp_path / "m.safetensors")
    with corenet.load(tmp_path / "m.safetensors", layers=[Swish, Both, Both.Half], workers=1) as again:
        assert again.evaluate(data()) == pytest.approx(one.evaluate(data()))
    with pytest.raises(FileError, match=r"got .*'user_layers:Both'.*load\(path, layers=\[Both\]\)"):
        corenet.load(tmp_path / "m.safetensors")


def test_its_name_in_a_description_is_its_place():
    assert nn.describe(Both.Half()) == {"type": "user_layers:Both.Half"}
    assert nn.describe(Swish(0.5)) == {"type": "user_layers:Swish", "beta": 0.5}
    own = {"Both": Both, "Swish": Swish, "Both.Half": Both.Half}
    assert nn.describe(nn.build(nn.describe(net()), own)) == nn.describe(net())


def test_arguments_that_cannot_travel_are_refused():
    with pytest.raises(ConfigError, match=r"Swish\(beta=…\): expected numbers, text, layers, or lists.*array"):
        nn.describe(Swish(np.ones(2)))
    message = r"layer Forgetful: expected its argument 'size' as an attribute.*self\.size = size"
    with pytest.raises(ConfigError, match=message):
        corenet.Trainer(nn.Sequential(Forgetful(3)))


def test_a_layer_within_a_function_is_refused_at_once():
    class Local(Swish):
        pass

    with pytest.raises(ConfigError, match=r"Local: expected a class of a module, got one inside of a function\. Put"):
        corenet.Trainer(nn.Sequential(nn.Flatten(), Local()))
    assert where_to_find([Swish]) == {"layers": [["user_layers", "Swish"]], "script": None}


def error_of(layer):
    broken = nn.Sequential(nn.Flatten(), nn.Linear(36, 3), layer)
    with corenet.Trainer(broken, workers=2, share_cores=True) as one, pytest.raises(LayerError) as caught:
        one.fit(data(), batch_size=8, callbacks=())
    return str(caught.value)


def test_an_error_in_it_arrives_with_its_own_traceback():
    said = error_of(Breaks())
    assert said.startswith("layer 2 (Breaks), forward, raised ValueError\n\nTraceback")
    assert said.count("Traceback") == 1 and said.count('  File "') == 1 and Path(user_layers.__file__).name in said
    assert said.endswith("ValueError: of all things, step 3\n")


def test_a_function_that_returns_something_or_takes_too_few_arrays_is_told():
    said = error_of(Returns())
    assert said.startswith("layer 2 (Returns), forward: expected a function that returns nothing, got a ndarray.")
    said = error_of(Miscalled())
    assert said.startswith("layer 2 (Miscalled), backward, raised TypeError") and "File" not in said


# In the program itself.

SCRIPT = """
class Double(nn.Layer):
    def plan(self, p, x):
        y = p.activation(x.shape)
        p.forward(self.forward, x.data, y.data)
        p.backward(self.forward, y.grad, x.grad)
        return y

    def forward(self, n, x, y):
        y[:n] = 2 * x[:n]

def run():
    net = nn.Sequential(nn.Flatten(), nn.Linear(36, 3), Double())
    with corenet.Trainer(net, workers=2, share_cores=True) as trainer:
        print(fit(trainer)["loss"][0])
"""


def test_a_class_of_the_program_itself(program):
    losses = float(program(SCRIPT + "if __name__ == '__main__':\n    run()").succeed())
    assert math.isfinite(losses)


def test_a_program_without_a_guard_is_told(program):
    status, _, err = program(SCRIPT + "run()").end()
    assert status == 1 and err.count("Traceback") == 1
    last = err.splitlines()[-1]
    assert 'expected training below if __name__ == "__main__":' in last and "my_layers.py" in last


@pytest.mark.parametrize("how", ["stdin", "-c"])
def test_a_class_that_nobody_can_import(program, how):
    status, _, err = program(SCRIPT + "run()", how=how).end()
    assert status == 1
    assert "Double: expected a class that workers can import, got one of a notebook" in err.splitlines()[-1]


@pytest.mark.skipif(not EXAMPLE.is_file(), reason="not in a checkout")
def test_the_example_learns(program):
    out = program(EXAMPLE.read_text(), prelude="").succeed()
    accuracy = [line.rsplit("accuracy ", 1)[1].split("%")[0] for line in out.splitlines() if line.startswith("epoch")]
    assert float(accuracy[-1]) > 95 and "beta: 1." in out
