"""PyTorch as the peer of `corenet bench`: it does the same work, and the command finds and ends it."""

import json
import sys
from pathlib import Path

import pytest
from cli_command import succeed

pytest.importorskip("numba")
pytest.importorskip("torch")

import torch

from corenet import models
from corenet.bench import layers
from corenet.engine import make_plan

CHECKOUT = Path(__file__).parents[1]
pytestmark = pytest.mark.skipif(not (CHECKOUT / "bench").is_dir(), reason="needs a checkout")


@pytest.fixture
def bench(monkeypatch):
    """The folder `bench/` is where modules are looked for."""
    monkeypatch.syspath_prepend(str(CHECKOUT / "bench"))
    yield
    for name in ("torch_layers", "torch_nets"):
        sys.modules.pop(name, None)


def channels_first(shape: tuple[int, ...]) -> tuple[int, ...]:
    return shape if len(shape) == 1 else (shape[2], *shape[:2])


@pytest.mark.parametrize("case", layers.all_cases(), ids=lambda case: case.name)
def test_layers_have_the_same_shapes(bench, case):
    import torch_layers

    make = torch_layers._dense if case.name.startswith("dense") else torch_layers._convolution
    passes = make(case.description(), 1, "channels_last")
    assert set(passes) == {"forward", "data", "weights"}
    output = make_plan(case.layer, case.input_shape, 1).output_shape
    assert tuple(passes["forward"]().shape) == (1, *channels_first(output))
    data, weights = passes["data"](), passes["weights"]()
    dx = data if torch.is_tensor(data) else data[0]
    assert tuple(dx.shape) == (1, *channels_first(case.input_shape))
    given = [tensor.numel() for tensor in weights if tensor is not None]
    assert sum(given) == make_plan(case.layer, case.input_shape, 1).layout.parameter_count()


@pytest.mark.parametrize("name", layers.NETS)
def test_nets_have_the_same_parameters(bench, name):
    import torch_nets

    net = torch_nets.to_torch(models.get(name))
    expected = make_plan(models.get(name), models.INPUT_SHAPES[name], 1).layout.parameter_count()
    assert sum(parameter.numel() for parameter in net.parameters()) == expected


def test_the_command_measures_both_in_turn():
    arguments = "--quick", "--rounds", 2, "--only", "dense 84", "--peers", "--json", "-"
    document = json.loads(succeed("bench", "kernels", *arguments, cwd=CHECKOUT))
    assert document["versions"]["torch"].startswith(torch.__version__.partition("+")[0])
    for line in document["lines"]:
        assert line["peer"]["way"] in ("n=128", "n=16") and len(line["peer"]["values"]) == 2
        assert line["peer"]["ratio"]["low"] > 0
