"""plan_batch asks the ranks: their number, and whether all have passed the same."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.ranks("2")


def test_the_ranks_of_the_job_divide_the_batch(hvd, size):
    plan = hvd.plan_batch(global_batch=24 * size, samples=100 * size, largest_per_rank=8)
    assert (plan.ranks, plan.batch_size, plan.passes, plan.global_batch) == (size, 8, 3, 24 * size)
    assert (plan.steps_per_epoch, plan.remainder) == (12, 4 * size)


def test_different_arguments_are_an_error_on_every_rank(hvd, rank, size):
    if size == 1:
        pytest.skip("one rank agrees with itself")
    with pytest.raises(ValueError, match=rf"`plan_batch` .* per_rank=8 on rank 0 .* rank 1 \(this is rank {rank}\)"):
        hvd.plan_batch(per_rank=8 + rank)


def test_a_wrong_argument_on_one_rank_is_an_error_on_every_rank(hvd, rank, size):
    with pytest.raises(ValueError, match="whole numbers" if size == 1 else "needs the same"):
        hvd.plan_batch(per_rank=8 if rank else -8)
    assert hvd.plan_batch(per_rank=8).batch_size == 8  # the session goes on
