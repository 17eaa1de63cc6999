"""Runs of steps that fewer or faster steps can replace, found when a plan is finished.

    norm → ReLU         the ReLU is part of batch normalisation's passes over memory, in both directions, and so is the
    norm → add → ReLU   sum with a shortcut before it, and the sum of two gradients behind it (`batchnorm_relu.py`)
    ReLU → max-pool     the ReLU goes behind the pool, where there is less to do: the maximum commutes with it
    bias → max-pool     every gradient behind the pool goes to one pixel before it: the sum over either is the bias's
    conv → max-pool     the gradients of the convolution are made from the pool's, winner by winner (`pooled_conv.py`),
                        and a 2×2 pool is part of the convolution: what it reads is never in memory

A rule looks for its pattern among the forward steps, makes sure that nothing else reads or writes what lies in
between, and replaces the backward steps with the forward ones. Results are those of the steps as planned: the same bits
for the first three rules and a 2×2 pool, another order of summation for the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from ..kernels import batchnorm, batchnorm_relu, bias, conv, elementwise, pool, pooled_conv
from ..kernels.operation import Operation
from .buffer import Buffer
from .plan import Meet, Step

Steps = list[Step | Meet]


def replace_runs(
    forward: Steps, backward: Steps, output: Buffer, rules: Sequence[Callable[[Steps, Steps], tuple[Steps, Steps]]]
) -> tuple[Steps, Steps]:
    """The steps, in order of running, with the patterns of these rules replaced; `output` is read at the end."""
    reader = Step(_read_output, (output,))
    forward = [*forward, reader]
    for rule in rules:
        forward, backward = rule(forward, backward)
    return [step for step in forward if step is not reader], backward


def _read_output(n: int, output: np.ndarray) -> None:
    """Stands among the steps for who reads the net's output; it never runs."""


def _runs(steps: Steps, *operations: Operation) -> Iterator[tuple[Step, ...]]:
    """Runs of steps of these operations that follow each other."""
    for start in range(len(steps)):
        run = [step for step in steps[start : start + len(operations)] if isinstance(step, Step)]
        if [step.operation for step in run] == [*operations]:
            yield tuple(run)


def _users(steps: Steps, buffer: Buffer) -> list[Step]:
    """The steps that read or write a buffer's memory."""
    root = buffer.root
    return [step for step in steps if isinstance(step, Step) and any(b.root is root for b in step.buffers())]


def _replaced(steps: Steps, changes: dict[int, list[Step]]) -> Steps:
    """The steps with some, by identity, replaced by others."""
    return [new for step in steps for new in changes.get(id(step), [step])]


def _new(like: Buffer, shape: tuple[int, ...], step: Step) -> Buffer:
    """Another buffer of the layer whose step that is."""
    buffer = Buffer(shape, like.dtype.str, "arena")
    if step.layer is not None:
        step.layer.buffers.append(buffer)
    return buffer


def _relu_in_norm(forward: Steps, backward: Steps) -> tuple[Steps, Steps]:
    for norm, relu in _runs(forward, batchnorm.normalise, elementwise.relu_forward):
        x, gamma, beta, mean, rstd, between = norm.args
        y, shape = relu.args[1], between.shape
        if relu.args[0].root is not between.root or _users([*forward, *backward], between) != [norm, relu]:
            continue
        numbers = gamma, beta, mean, rstd
        changes = {
            id(norm): [],
            id(relu): [Step(batchnorm_relu.normalise, (x, *numbers, y.reshape(shape)), norm.layer)],
        }
        if backward:
            found = _behind_relu(backward, norm, y)
            if found is None:
                continue
            mask, sums = found
            _, dy, before = mask.args
            _, _, *rest = _users(backward, before)
            if [step.operation for step in rest] not in ([], [batchnorm.backward]):
                continue
            given = x, dy.reshape(shape), *numbers
            changes |= {
                id(mask): [],
                id(sums): [Step(batchnorm_relu.measure_gradients, (*given, *sums.args[4:]), sums.layer)],
                **{id(step): [Step(batchnorm_relu.backward, (*given, *step.args[5:]), step.layer)] for step in rest},
            }
        forward, backward = _replaced(forward, changes), _replaced(backward, changes)
    return forward, backward


def _relu_in_norm_and_add(forward: Steps, backward: Steps) -> tuple[Steps, Steps]:
    for norm, add, relu in _runs(forward, batchnorm.normalise, elementwise.add, elementwise.relu_forward):
        x, gamma, beta, mean, rstd, between = norm.args
        total, y, shape, everything = add.args[2], relu.args[1], between.shape, [*forward, *backward]
        shortcuts = [part for part in add.args[:2] if part.root is not between.root]
        if len(shortcuts) != 1 or relu.args[0].root is not total.root:
            continue
        if _users(everything, between) != [norm, add] or _users(everything, total) != [add, relu]:
            continue
        args = x, shortcuts[0].reshape(shape), gamma, beta, mean, rstd, y.reshape(shape)
        changes = {id(norm): [], id(add): [], id(relu): [Step(batchnorm_relu.normalise_add, args, norm.layer)]}
        if backward:
            found = _behind_relu(backward, norm, y)
            if found is None:
                continue
            mask, sums = found
            _, dy, masked = mask.args  # the gradient of the shortcut, too
            parts = dy.reshape(shape), None
            for both, following in _runs(backward, elementwise.add, elementwise.relu_backward):
                if following is mask and both.args[2].root is dy.root and _users(everything, dy) == [both, mask]:
                    first, second, _ = both.args
                    parts = first.reshape(shape), second.reshape(shape)
                    changes[id(both)] = []
            args = x, y.reshape(shape), *parts, mean, rstd, masked.reshape(shape), *sums.args[4:]
            changes |= {id(mask): [], id(sums): [Step(batchnorm_relu.measure_gradients_add, args, sums.layer)]}
        forward, backward = _replaced(forward, changes), _replaced(backward, changes)
    return forward, backward


def _behind_relu(backward: Steps, norm: Step, y: Buffer) -> tuple[Step, Step] | None:
    """The backward step of the ReLU that made y, if right after it the sums of `norm` are the first to read what it
    writes; and these."""
    for mask, sums in _runs(backward, elementwise.relu_backward, batchnorm.measure_gradients):
        if mask.args[0].root is y.root and sums.args[0] is norm.args[0]:
            return (mask, sums) if _users(backward, mask.args[2])[:2] == [mask, sums] else None
    return None


def _pool_before_relu(forward: Steps, backward: Steps) -> tuple[Steps, Steps]:
    for relu, pooling in _runs(forward, elementwise.relu_forward, pool.max_forward):
        x, y = relu.args
        between, z, which, *how = pooling.args
        if between.root is not y.root:
            continue
        back = [step for step in _users([*forward, *backward], y) if step not in (relu, pooling)]
        if [step.operation for step in back] not in ([], [elementwise.relu_backward]):
            continue
        if back and len(_users(backward, back[0].args[1])) != 2:  # its gradient comes from the pool alone
            continue
        pooled, flat = _new(z, z.shape, pooling), (z.shape[0], int(np.prod(z.shape[1:])))
        image = x.reshape(between.shape)
        forward = _replaced(forward, {
            id(relu): [Step(pool.max_forward, (image, pooled, which, *how), pooling.layer)],
            id(pooling): [Step(elementwise.relu_forward, (pooled.reshape(flat), z.reshape(flat)), relu.layer)],
        })  # fmt: skip
        if not back:
            continue
        dx = back[0].args[2]
        (unpool,) = (step for step in _users(backward, which) if step.operation is pool.max_backward)
        dz = unpool.args[0]
        gradient = _new(dz, dz.shape, pooling)
        relu_args = z.reshape(flat), dz.reshape(flat), gradient.reshape(flat)
        backward = _replaced(backward, {
            id(unpool): [Step(elementwise.relu_backward, relu_args, relu.layer)],
            id(back[0]): [Step(pool.max_backward, (gradient, which, dx.reshape(between.shape), *how), pooling.layer)],
        })  # fmt: skip
    return forward, backward


def _bias_behind_pool(forward: Steps, backward: Steps) -> tuple[Steps, Steps]:
    for unpool in [step for step in backward if isinstance(step, Step) and step.operation is pool.max_backward]:
        dz, _, dy, *_ = unpool.args
        pixels = dz.reshape((dz.shape[0], int(np.prod(dz.shape[1:4])), dz.shape[4]))
        backward = _replaced(backward, {
            id(step): [Step(bias.backward, (pixels, step.args[1]), step.layer)]
            for step in _users(backward, dy) if step.operation is bias.backward
        })  # fmt: skip
    return forward, backward


def _gradients_of_winners(forward: Steps, backward: Steps) -> tuple[Steps, Steps]:
    for convolution, pooling in _runs(forward, conv.forward, pool.max_forward):
        image, w, _, y, stride, dilation, groups = convolution.args
        between, z, which, *how = pooling.args
        if between.root is not y.root or groups > 1 or max(dilation) > 1:
            continue
        if not pooled_conv.is_faster(w.shape, y.shape, z.shape):
            continue
        unpools = [step for step in _users(backward, which) if step.operation is pool.max_backward]
        if not unpools:  # prediction, or a layer whose output needs no gradient
            continue
        unpool = unpools[0]
        dz, _, dy, *_ = unpool.args
        changes: dict[int, list[Step]] = {id(unpool): []}
        for step in _users(backward, dy):
            if step is unpool:
                continue
            if step.operation is conv.backward_weights:
                operation, args = pooled_conv.backward_weights, (image, dz, which, step.args[2], stride, *how)
            elif step.operation is conv.backward_data:
                _, _, dx, _, padding, *_ = step.args
                size = pooled_conv.backward_data_work(dx.shape, dz.shape, w.shape, stride, padding, *how)
                work = _new(dx, (size,), step)
                sizes = y.shape[1:4]
                args = (dz, which, w, dx, sizes, stride, padding, *how, work)
                operation = pooled_conv.backward_data
            else:
                break
            changes[id(step)] = [Step(operation, args, step.layer)]
        else:
            backward = _replaced(backward, changes)
    return forward, backward


def _pool_in_convolution(forward: Steps, backward: Steps) -> tuple[Steps, Steps]:
    for convolution, pooling in _runs(forward, conv.forward, pool.max_forward):
        *operands, y, stride, dilation, groups = convolution.args
        between, z, which, *how = pooling.args
        if tuple(how) != pooled_conv.HALVES or groups > 1 or max(dilation) > 1 or between.root is not y.root:
            continue
        if _users([*forward, *backward], y) == [convolution, pooling]:
            step = Step(pooled_conv.forward, (*operands, z, which, stride), convolution.layer)
            forward = _replaced(forward, {id(convolution): [], id(pooling): [step]})
    return forward, backward


RULES = _relu_in_norm, _relu_in_norm_and_add, _pool_before_relu, _bias_behind_pool, _gradients_of_winners
RULES_OF_FLOAT32 = (_pool_in_convolution,)  # when the precision of each step is decided
