"""Cases of the products with operands of bfloat16: those of the float32 products, with scratch."""

from dataclasses import replace

import numpy as np
from kernel_cases import Case, conv_cases, linear_cases

from corenet.kernels import bf16_conv, bf16_linear, conv, linear


def conv_bf16_cases(rng):
    for case in conv_cases(rng):
        first, second, out = (*case.args, None)[1:4]
        if case.operation is conv.forward:
            work, operation = bf16_conv.forward_work(first.shape, second.shape), bf16_conv.forward
        elif case.operation is conv.backward_weights:
            work, operation = bf16_conv.backward_weights_work(first.shape, second.shape), bf16_conv.backward_weights
        elif case.operation is conv.backward_data:
            shapes, how = (out.shape, first.shape, second.shape), case.args[4:7]
            work, operation = bf16_conv.backward_data_work(*shapes, *how), bf16_conv.backward_data
            case.args.pop()
        else:
            continue
        yield _with(case, operation, np.zeros(work, np.uint16))


def linear_bf16_cases(rng):
    for case in linear_cases(rng):
        first, second = case.args[1:3]
        if case.operation is linear.forward:
            yield _with(case, bf16_linear.forward, np.zeros(first.size, np.uint16))
        elif case.operation is linear.backward_data:
            case.args.pop()
            chunk, outputs = first.shape
            inputs = second.shape[0]
            work = np.zeros(bf16_linear.backward_data_work(chunk, inputs, outputs), np.uint16)
            yield _with(case, bf16_linear.backward_data, work)
        elif case.operation is linear.backward_weights:
            yield replace(case, operation=bf16_linear.backward_weights)


def _with(case: Case, operation, *scratch) -> Case:
    args = [*case.args, *scratch]
    return replace(case, operation=operation, args=args, scratch=list(range(len(case.args), len(args))))


FAMILIES = conv_bf16_cases, linear_bf16_cases
