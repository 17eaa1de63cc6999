"""What a summary says of a net: figures known, by hand, from PyTorch and from the plan; and its table."""

import pytest
from nets import ALL, shape_of

from corenet import models, nn
from corenet.engine import make_plan
from corenet.engine.buffer import aligned
from corenet.errors import ConfigError, ShapeError
from corenet.nn import (
    Conv1d,
    Conv2d,
    Conv3d,
    ConvTranspose2d,
    CrossEntropy,
    Flatten,
    Linear,
    ReLU,
    Residual,
    Sequential,
)
from corenet.train import chunking

# By hand: a gradient beside each output but the Conv2d's, whose gradient is the sum's; the Conv2d's padded input;
# 1000·16 floats of scratch in Linear, 2 aligned numbers per sample and (4 + 7)·1000 floats in LayerNorm.
TABLE = """\
layer     type       output     parameters    FLOPs    bytes
────────────────────────────────────────────────────────────
          input      (9, 8, 2)
0         Residual   (9, 8, 2)           0        0    4,608
  0.body  Conv2d     (9, 8, 2)          38    5,184    5,824
1.0       Flatten    (144,)              0        0        0
2         Linear     (1000,)       145,000  288,000   96,000
3         LayerNorm  (1000,)         2,000        0  208,128
────────────────────────────────────────────────────────────
147,038 parameters; FLOPs of a sample: 293,184 forward, 874,368 in training
bytes of a chunk of 4: 180,928 (329,664 before reuse)"""


def test_the_table():
    residual = Residual(Conv2d(2, 2, 3, padding=1))
    net = Sequential(residual, Sequential(Flatten()), Linear(144, 1000), nn.LayerNorm(1000))
    summary = net.summary((9, 8, 2), chunk=4)
    assert str(summary) == repr(summary) == TABLE


def test_lenet5_by_hand():
    summary = models.lenet5().summary((28, 28, 1))
    assert [(row.path, row.type, row.output_shape) for row in summary.rows[:4]] == [
        ("0", "Conv2d", (28, 28, 6)), ("1", "ReLU", (28, 28, 6)), ("2", "MaxPool2d", (14, 14, 6)),
        ("3", "Conv2d", (10, 10, 16)),
    ]  # fmt: skip
    assert [row.parameters for row in summary.rows if row.parameters] == [156, 2_416, 48_120, 10_164, 850]
    flops = [2 * 28 * 28 * 6 * 25, 2 * 100 * 16 * 25 * 6, 2 * 400 * 120, 2 * 120 * 84, 2 * 84 * 10]
    assert [row.flops for row in summary.rows if row.flops] == flops
    assert (summary.parameters, summary.flops) == (61_706, sum(flops))
    assert summary.training_flops == 3 * sum(flops) - flops[0]
    activation = 4 * 32 * 28 * 28 * 6
    assert summary.rows[0].memory == 4 * 32 * 32 * 32  # the padded images; its output is never in memory
    # The ReLU works on what the pool leaves: values and gradients, before and behind it, and whose they were.
    assert summary.rows[1].memory == 0 and summary.rows[2].memory == activation + activation // 16
    assert summary.rows[6].memory == 0


def test_numbers_that_are_known():
    assert models.mnist_example().summary((28, 28, 1)).parameters == 1_199_882
    resnet = models.resnet20().summary((32, 32, 3))
    assert resnet.parameters == 272_474
    stages = 7 * 16**2 * 9 * 32**2 - 16 * 13 * 9 * 32**2, 5 * 32**2 * 9 * 16**2 + 16 * 32 * 9 * 16**2 + 16 * 32 * 16**2
    last = 5 * 64**2 * 9 * 8**2 + 32 * 64 * 9 * 8**2 + 32 * 64 * 8**2
    assert resnet.flops == 2 * (sum(stages) + last + 640)
    assert round(resnet.flops / 2e6, 1) == 40.8  # million multiply-adds, as this net is known to take


@pytest.mark.parametrize(
    "layer, shape, flops",
    [
        (Conv2d(32, 32, 3, padding=1, groups=32), (28, 28, 32), 2 * 28 * 28 * 32 * 9),
        (Conv2d(4, 6, (3, 2), stride=2, groups=2), (7, 6, 4), 2 * 3 * 3 * 6 * 6 * 2),
        (Conv1d(3, 5, 4, dilation=2), (10, 3), 2 * 4 * 5 * 4 * 3),
        (Conv3d(2, 3, (1, 2, 3)), (4, 5, 6, 2), 2 * 4 * 4 * 4 * 3 * 6 * 2),
        (ConvTranspose2d(4, 6, (3, 2), 2, groups=2), (5, 6, 4), 2 * 5 * 6 * 4 * 6 * 3),
        (Linear(7, 5, bias=False), (7,), 2 * 7 * 5),
        (nn.BatchNorm2d(3), (4, 4, 3), 0),
    ],
    ids=repr,
)
def test_flops_by_hand(layer, shape, flops):
    alone = layer.summary(shape)
    assert (alone.flops, alone.training_flops) == (flops, 2 * flops)
    behind = Sequential(ReLU(), layer).summary(shape)
    assert (behind.flops, behind.training_flops) == (flops, 3 * flops)


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")  # PyTorch's, about its speed
@pytest.mark.parametrize("label", [label for label in ALL if "Dropout2d" not in label])  # which needs masks there
def test_flops_are_pytorchs(label):
    torch = pytest.importorskip("torch")
    counter = pytest.importorskip("torch.utils.flop_counter").FlopCounterMode
    import torch_nets

    net, summary = torch_nets.to_torch(ALL[label]).float().eval(), ALL[label].summary(shape_of(label))
    *size, channels = shape_of(label)
    images = torch.zeros(2, channels, *size)
    # A first layer's output needs a gradient in a plan, even without weights, but not if it is the images themselves.
    images.requires_grad_(not (list(net[0].parameters()) or isinstance(net[0], torch_nets.Flatten | torch.nn.Identity)))
    with counter(display=False) as forward:
        y = net(images)
    assert forward.get_total_flops() == 2 * summary.flops
    if "groups=" not in repr(ALL[label]):  # PyTorch's count forgets them in the weights' gradient
        with counter(display=False) as backward:
            y.sum().backward()
        assert forward.get_total_flops() + backward.get_total_flops() == 2 * summary.training_flops


@pytest.mark.parametrize("label", [*ALL, "with a label for each pixel"])
def test_totals_are_those_of_the_rows_and_of_the_plan_that_training_follows(label):
    net, shape = (ALL[label], shape_of(label)) if label in ALL else (Conv2d(1, 3, 3), (7, 6, 1))
    summary, plan = net.summary(shape, chunk=5), make_plan(net, shape, 5, loss=CrossEntropy())
    kept = plan.bytes["io"] + plan.bytes["row"]
    assert summary.memory == plan.bytes["arena"] + kept
    layers = {buffer for layer in plan.layers for buffer in layer.buffers}
    of_loss = [b for b in plan.forward[-1].buffers() if b.space == "arena" and b.root not in layers]
    arena = sum(row.memory for row in summary.rows) + sum(aligned(b.nbytes) for b in of_loss)
    assert summary.memory_before_reuse == arena + kept
    assert summary.parameters == sum(row.parameters for row in summary.rows) == plan.layout.parameter_count()
    assert summary.flops == sum(row.flops for row in summary.rows)
    last = next(row for row in summary.rows if f"{summary.rows[-1].path}.".startswith(f"{row.path}."))  # or around it
    assert last.output_shape == plan.output_shape


def test_memory_is_used_again_in_a_deep_net():
    summary = models.resnet20().summary((32, 32, 3))
    assert 0.2 * summary.memory_before_reuse < summary.memory < 0.5 * summary.memory_before_reuse


def test_layers_inside_others_are_indented_below_them():
    block = Residual(Sequential(Conv2d(2, 2, 3, padding=1), Residual(ReLU())), Conv2d(2, 2, 1))
    summary = Sequential(Sequential(block, ReLU()), *[ReLU() for _ in range(10)]).summary((5, 5, 2))
    lines = str(summary).splitlines()[3:-3]
    assert [line[:30].rstrip() for line in lines[:5]] == [
        "0.0                  Residual",
        "  0.0.body.0         Conv2d",
        "  0.0.body.1         Residual",
        "    0.0.body.1.body  ReLU",
        "  0.0.shortcut       Conv2d",
    ]
    assert [line.split()[0] for line in lines[5:]] == ["0.1", *map(str, range(1, 11))]


def test_a_layer_may_be_the_whole_net_and_the_output_of_any_shape():
    summary = Residual(Conv2d(2, 2, 3, padding=1)).summary((5, 5, 2))
    assert [(row.path, row.type) for row in summary.rows] == [("", "Residual"), ("body", "Conv2d")]
    assert [line.split()[0] for line in str(summary).splitlines()[3:5]] == ["net", "body"]
    assert Flatten().summary((2, 3)).rows == (nn.summary.Row("", "Flatten", (6,), 0, 0, 0),)
    assert Sequential().summary((2, 3)).rows[0].type == "Sequential"


def test_layers_of_ones_own_are_counted_in():
    class Both(nn.Layer):
        def plan(self, p, x):
            scale = p.parameter("scale", (7,), nn.init.ones())
            p.backward(lambda n, dscale: None, scale.grad)
            return p.child("b", Linear(3, 3), p.child("a", Linear(3, 3), x))

    rows = Sequential(ReLU(), Both()).summary((3,)).rows
    assert [(row.path, row.parameters) for row in rows] == [("0", 0), ("1", 7), ("1.a", 12), ("1.b", 12)]


def test_by_default_the_chunk_is_the_largest_that_training_chooses():
    assert ReLU().summary((3,)).chunk == chunking.LARGEST


@pytest.mark.parametrize("bad", [28, None, (), [28, 28, 1], "28", (28, 0, 1), (28.0, 28, 1), (28, 28, -1), (28, None)])
def test_bad_shapes_and_chunks_are_refused(bad):
    with pytest.raises(ConfigError, match=r"^summary\(input_shape=…\): expected "):
        ReLU().summary(bad)
    with pytest.raises(ConfigError, match=r"^summary\(chunk=…\): expected an integer of at least 1, got 0"):
        ReLU().summary((3,), chunk=0)


def test_a_net_that_does_not_fit_is_told_as_always():
    with pytest.raises(ShapeError, match=r"^layer 1\.body \(Linear\): expected vectors of 3 features"):
        Sequential(Flatten(), Residual(Linear(3, 3))).summary((2, 2))


def test_every_step_knows_its_layer():
    net = Sequential(Residual(Sequential(Conv2d(2, 2, 3, padding=1), ReLU())), Flatten(), Linear(50, 3))
    plan = make_plan(net, (5, 5, 2), 2, loss=CrossEntropy())
    names = [str(step.layer) for step in plan.forward]
    conv, relu, residual, linear = (
        "layer 0.body.0 (Conv2d)", "layer 0.body.1 (ReLU)", "layer 0 (Residual)", "layer 2 (Linear)"
    )  # fmt: skip
    assert names == [conv, conv, relu, residual, linear, "None"]  # padding and convolution; the loss is no layer
    names = [str(step.layer) for step in plan.backward]
    assert names == [linear] * (len(names) - 3) + [relu, conv, conv]
    assert {str(step.layer) for step in make_plan(Linear(2, 3), (2,), 1).forward} == {"net (Linear)"}
