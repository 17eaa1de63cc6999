"""How many samples go through a net together."""

import pytest

from corenet import nn
from corenet.engine import make_plan
from corenet.train.chunking import LARGEST, LEAST_FOR_STATISTICS, choose_chunk


def plan(net, dims=2):
    return make_plan(nn.Sequential(net, nn.Flatten()), (2,) * (dims + 1), 1, loss=nn.CrossEntropy())


@pytest.mark.parametrize("batch, chunk", [(1, 1), (8, 2), (13, 4), (32, 8), (64, 8), (65, 9), (4096, LARGEST)])
def test_a_batch_has_eight_chunks_of_eight_or_four_smaller_ones(batch, chunk):
    assert choose_chunk(plan(nn.Sequential(nn.ReLU(), nn.Residual(nn.ReLU()))), batch) == chunk


@pytest.mark.parametrize("norm, dims", [(nn.BatchNorm1d(2), 1), (nn.BatchNorm2d(2), 2), (nn.BatchNorm3d(2), 3)])
def test_batch_norm_gets_enough_samples_wherever_it_is(norm, dims):
    net = plan(nn.Sequential(nn.ReLU(), nn.Residual(nn.ReLU(), nn.Sequential(norm))), dims)
    assert choose_chunk(net, 64) == LEAST_FOR_STATISTICS
    assert choose_chunk(net, 10) == 10  # there are no more
    assert choose_chunk(net, 4096) == LARGEST


def test_batch_norm_of_the_whole_batch_needs_no_larger_chunks():
    synchronised = nn.BatchNorm2d(2, sync=True)
    assert choose_chunk(plan(nn.Sequential(nn.Residual(synchronised))), 64) == 8
    assert choose_chunk(plan(nn.Sequential(synchronised, nn.BatchNorm2d(2))), 64) == LEAST_FOR_STATISTICS
