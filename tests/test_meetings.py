"""Where all chunks of a batch meet: what is in the shared rows then, and what is made of it."""

import numpy as np
import pytest
from nets import ALL, SHAPE

from corenet.engine import aligned_bytes, make_plan
from corenet.kernels import batchnorm
from corenet.nn import CrossEntropy
from corenet.parallel.meetings import Meetings

CHUNKS = 3


@pytest.fixture
def plan():
    return make_plan(ALL["BatchNorm2d, sync, several"], SHAPE, 2, 2 * CHUNKS, loss=CrossEntropy())


def meetings_of(plan):
    rows = np.full((CHUNKS, plan.row_size), np.nan, np.float32)
    return rows, Meetings(plan, rows, np.full(CHUNKS, 2), aligned_bytes(plan.bytes["common"]))


def test_every_element_of_a_row_is_shared_once_and_the_columns_of_a_meeting_before_it(plan):
    """Once, because the other workers may be reading any column whose meeting has begun."""
    rows, meetings = meetings_of(plan)
    assert len(meetings) == len(plan.meets) == 6
    row, done = np.arange(plan.row_size, dtype=np.float32), np.zeros(plan.row_size, bool)
    for part in range(len(meetings) + 1):
        rows[:] = np.nan
        meetings.share(part, 1, row)
        there = np.isfinite(rows[1])
        assert (rows[1, there] == row[there]).all() and np.isnan(rows[[0, 2]]).all()
        assert not (there & done).any()
        done |= there
        for column in plan.meets[part].columns if part < len(meetings) else ():
            assert np.isfinite(column.array({"row": rows[1].view(np.uint8)})).all()
    assert done.all()


def test_a_net_whose_chunks_do_not_meet_shares_its_rows_whole():
    plan = make_plan(ALL["BatchNorm2d, twice"], SHAPE, 2, 2 * CHUNKS, loss=CrossEntropy())
    rows, meetings = meetings_of(plan)
    meetings.share(0, 2, np.ones(plan.row_size, np.float32))
    assert len(meetings) == 0 and (rows[2] == 1).all() and np.isnan(rows[:2]).all()


def test_there_are_no_meetings_in_prediction():
    assert make_plan(ALL["BatchNorm2d, sync, several"], SHAPE, 2).meets == ()


@pytest.mark.parametrize("sizes", [(4,), (1,), (4, 4), (4, 1), (4, 4, 2), (3, 3, 3, 3, 3), (4, 4, 4, 4, 4, 4, 1)])
def test_chunks_combined_are_the_whole_batch(sizes):
    """Mean, variance and means of gradients of all values at once; what is left of a longer batch plays no part."""
    rng, chunks, positions, places = np.random.default_rng(0), len(sizes), 5, len(sizes) + 3
    counts = np.array([*sizes, 4, 4, 4])
    x, dy, dy_x = (rng.standard_normal((sum(sizes), positions, 2)) * 2 + 3 for _ in range(3))
    means, centreds, dgammas, dbetas = (np.full((places, 2), 1e6) for _ in range(4))
    for i, part in enumerate(np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1])):
        means[i], centreds[i] = x[part].mean((0, 1)), x[part].var((0, 1)) * len(part) * positions
        dgammas[i], dbetas[i] = dy_x[part].sum((0, 1)), dy[part].sum((0, 1))
    mean, rstd, both, work = np.zeros(2), np.zeros(2), np.zeros((2, 2)), np.zeros((places, 4))
    batchnorm.combine(chunks, means, centreds, counts, mean, rstd, work, positions, 0.01)
    np.testing.assert_allclose(mean, x.mean((0, 1)), rtol=1e-13)
    np.testing.assert_allclose(rstd, 1 / np.sqrt(x.var((0, 1)) + 0.01), rtol=1e-13)
    batchnorm.combine_gradients(chunks, dgammas, dbetas, counts, both, work, positions)
    np.testing.assert_allclose(both, [dy.mean((0, 1)), dy_x.mean((0, 1))], rtol=1e-13)
