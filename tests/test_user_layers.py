"""A user's own layers: the same bits on any number of workers, in model files, and errors that say what to do."""

import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import other_layers
import pytest
import user_layers
from conftest import PRELUDE
from nets import some_batch, within
from other_layers import Block, Louder, Plain
from test_gradients import check_gradients
from user_layers import Both, Breaks, Forgetful, Miscalled, Returns, Swish

import corenet
from corenet import nn
from corenet.errors import ConfigError, FileError, LayerError
from corenet.parallel.user_layers import where_to_find
from corenet.train.chunking import LEAST_FOR_STATISTICS
from corenet.train.loading import _find

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


def test_a_model_file_wants_the_classes_it_was_made_of(trainer, tmp_path):
    path = tmp_path / "m.safetensors"
    one = trainer(net(), kernels="numpy")
    one.fit(data(), callbacks=())
    one.save(path)
    fix = r"Import them, and corenet\.load\(path, layers=\[Both, Swish, Both\.Half\]\)"
    message = rf"model .*: expected the classes of layers that are not corenet's: {{}}, got {{}}\. {fix}"
    with pytest.raises(ConfigError, match=message.format("user_layers:Both, .*:Swish, .*:Both.Half", "none")):
        corenet.load(path)
    with pytest.raises(
        ConfigError, match=message.format("user_layers:Both, user_layers:Both.Half", "user_layers:Swish")
    ):
        corenet.load(path, layers=Swish)
    with pytest.raises(ConfigError, match=r"load\(layers=…\): expected classes of layers, got Swish\(\)"):
        corenet.load(path, layers=[Swish()])


def test_a_class_is_found_by_its_module_or_else_by_a_name_that_only_one_has(trainer, tmp_path):
    path = tmp_path / "m.safetensors"
    one = trainer(nn.Sequential(nn.Flatten(), nn.Linear(36, 3), Swish()), kernels="numpy")
    one.fit(data(), callbacks=())
    one.save(path)
    assert type(corenet.load(path, layers=[other_layers.Swish, Swish]).net.layers[2]) is Swish

    class Changed(Swish):
        def __init__(self, exponent):
            pass

    Changed.__qualname__ = "Swish"
    with pytest.raises(
        FileError, match=r"unexpected keyword argument 'beta'\. Use .*, or the layers as they were when"
    ):
        corenet.load(path, layers=[Changed])

    class Changes(Swish):
        def __init__(self, beta):
            self.beta = 2 * beta

    Changes.__qualname__ = "Swish"
    with pytest.raises(ConfigError, match=r"^layer Swish, attribute 'beta': expected the argument as it was given"):
        corenet.load(path, layers=[Changes])

    assert _find(["elsewhere:Swish"], [Both, Swish], "model", "load") == {"elsewhere:Swish": Swish}
    with pytest.raises(
        ConfigError, match=r"one class for elsewhere:Swish, got user_layers:Swish and other_layers:Swish"
    ):
        _find(["elsewhere:Swish"], [Swish, other_layers.Swish], "model", "load")


def test_two_classes_of_a_name_are_two_layers():
    two = nn.Sequential(nn.Flatten(), other_layers.Swish(2.0), Swish(0.5), nn.Linear(36, 3))
    with corenet.Trainer(two, workers=1, kernels="numpy") as one:
        outputs = one.predict(data()[0])
    assert np.allclose(outputs, outputs[0])  # the first one's output is the same for every image


def test_its_name_in_a_description_is_its_place():
    assert nn.describe(Both.Half()) == {"type": "user_layers:Both.Half"}
    assert nn.describe(Swish(0.5)) == {"type": "user_layers:Swish", "beta": 0.5}
    own = {f"user_layers:{kind.__qualname__}": kind for kind in (Both, Swish, Both.Half)}
    assert nn.describe(nn.build(nn.describe(net()), own)) == nn.describe(net())


def test_arguments_that_cannot_travel_are_refused():
    with pytest.raises(ConfigError, match=r"Swish\(beta=…\): expected numbers, text, layers, or lists.*array"):
        nn.describe(Swish(np.ones(2)))
    message = r"layer Forgetful: expected its argument 'size' as an attribute.*self\.size = size"
    with pytest.raises(ConfigError, match=message):
        corenet.Trainer(nn.Sequential(Forgetful(3)))
    with pytest.raises(ConfigError, match=r"layer ForgetfulBlock: expected its argument 'channels' as an attribute"):
        corenet.Trainer(nn.Sequential(other_layers.ForgetfulBlock(3)))


def test_arguments_that_do_not_stay_as_they_were_given_are_refused():
    corenet.Trainer(nn.Sequential(Louder(6.0)))
    message = (
        r"layer Louder, attribute 'gain': expected the argument as it was given.*got 1\..* made of 2.0.*self\.gain = "
    )
    with pytest.raises(ConfigError, match=message):
        corenet.Trainer(nn.Residual(nn.Sequential(Louder(20 * math.log10(2), mistaken=True))))
    with pytest.raises(ConfigError, match=r"layer Wrapped, attribute 'body': expected the argument as it was given"):
        corenet.Trainer(other_layers.Wrapped(nn.ReLU()))


def test_subclasses_of_sequential(trainer, tmp_path):
    path, plain = tmp_path / "m.safetensors", Plain(nn.Conv2d(1, 2, 1), Block(2), nn.Flatten(), nn.Linear(72, 3))
    assert nn.describe(plain)["layers"][1] == {"type": "other_layers:Block", "channels": 2}
    assert repr(Block(2)).startswith("Block(\n  0: Conv2d(in_channels=2")
    one = trainer(plain, workers=2, kernels="numpy")
    one.fit(data(), callbacks=())
    one.save(path)
    again = corenet.load(path, layers=[Plain, Block], workers=1, kernels="numpy")
    assert again.params_sha256() == one.params_sha256() and type(again.net) is Plain


def test_batch_norm_inside_of_a_layer_gets_enough_samples():
    class Chunk(corenet.train.Callback):
        def on_start(self, info):
            self.size = info.chunk

    chunk = Chunk()
    with corenet.Trainer(nn.Sequential(nn.Conv2d(1, 2, 1), Block(2), nn.Flatten(), nn.Linear(72, 3)), workers=1) as one:
        one.fit(data(), batch_size=32, callbacks=[chunk])
    assert chunk.size == LEAST_FOR_STATISTICS


def test_a_layer_within_a_function_is_refused_at_once():
    class Local(Swish):
        pass

    with pytest.raises(ConfigError, match=r"Local: expected a class of a module, got one inside of a function\. Put"):
        corenet.Trainer(nn.Sequential(nn.Flatten(), Local()))
    assert where_to_find([Swish]) == {"layers": {"user_layers:Swish": "user_layers"}, "script": None}


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


@pytest.mark.parametrize("share", ["", ", share_cores=True"])
def test_a_program_without_a_guard_is_told(program, share):
    many = f"workers={len(os.sched_getaffinity(0))}{share}"  # as many as there are cores: a worker has fewer
    status, _, err = program(SCRIPT.replace("workers=2, share_cores=True", many) + "run()").end()
    assert status == 1 and err.count("Traceback") == 1
    last = err.splitlines()[-1]
    assert 'expected training below if __name__ == "__main__":' in last and "my_layers.py" in last


def test_a_program_that_ends_when_a_worker_imports_it_is_told(program):
    ends = "import argparse, sys\nparser = argparse.ArgumentParser()\nparser.add_argument('--needed', required=True)\n"
    known = ends + "parser.parse_args(['--needed=1'] if __name__ == '__main__' else [])\n"
    status, _, err = program(SCRIPT + known + "if __name__ == '__main__':\n    run()").end()
    last = err.splitlines()[-1]
    assert status == 1 and ": expected to be imported by a worker, for its layer Double, got exit code 2. Put" in last


def test_a_module_of_a_package_as_the_program(tmp_path):
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "shared.py").write_text("TWO = 2\n")
    (package / "main.py").write_text(
        f"{PRELUDE}\nfrom .shared import TWO\n{SCRIPT}\nif __name__ == '__main__':\n    run()\n"
    )
    command = [sys.executable, "-m", "package.main"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert run.returncode == 0 and math.isfinite(float(run.stdout)), run.stderr


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
