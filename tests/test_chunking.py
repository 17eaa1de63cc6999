"""How many samples go through a net together."""

import pytest

from corenet import nn
from corenet.train.chunking import LARGEST, LEAST_FOR_STATISTICS, choose_chunk


@pytest.mark.parametrize("batch, chunk", [(1, 1), (8, 1), (64, 8), (65, 9), (4096, LARGEST)])
def test_a_batch_has_eight_chunks_that_fit_the_cache(batch, chunk):
    assert choose_chunk(nn.describe(nn.Sequential(nn.ReLU(), nn.Residual(nn.ReLU()))), batch) == chunk


@pytest.mark.parametrize("norm", [nn.BatchNorm1d(2), nn.BatchNorm2d(2), nn.BatchNorm3d(2)])
def test_batch_norm_gets_enough_samples_wherever_it_is(norm):
    net = nn.describe(nn.Sequential(nn.ReLU(), nn.Residual(nn.ReLU(), nn.Sequential(norm))))
    assert choose_chunk(net, 64) == LEAST_FOR_STATISTICS
    assert choose_chunk(net, 10) == 10  # there are no more
    assert choose_chunk(net, 4096) == LARGEST


def test_batch_norm_of_the_whole_batch_needs_no_larger_chunks():
    synchronised = nn.BatchNorm2d(2, sync=True)
    assert choose_chunk(nn.describe(nn.Sequential(nn.Residual(synchronised))), 64) == 8
    assert choose_chunk(nn.describe(nn.Sequential(synchronised, nn.BatchNorm2d(2))), 64) == LEAST_FOR_STATISTICS
