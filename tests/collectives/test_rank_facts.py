"""Flags, numbers and dictionaries of each rank reach all ranks."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from smddp_tf.collectives.rank_facts import (
    any_rank,
    facts_of_ranks,
    numbers_of_ranks,
    objects_of_ranks,
    warn_on_rank_zero,
)

pytestmark = pytest.mark.ranks("2", "2+1")


def test_a_flag_of_any_rank(hvd, rank, size):
    for holder in range(size):
        assert any_rank(rank == holder, "rank_facts (flag)") is True
    assert any_rank(False, "rank_facts (flag)") is False


def test_the_numbers_of_all_ranks_in_rank_order(hvd, rank, size):
    integers = numbers_of_ranks([rank, 10 * rank - 2**62], "rank_facts (integers)")
    np.testing.assert_array_equal(integers, [[other, 10 * other - 2**62] for other in range(size)])
    assert integers.dtype == np.int64
    floats = numbers_of_ranks([0.1 * rank, 3], "rank_facts (floats)")
    np.testing.assert_array_equal(floats, [[0.1 * other, 3.0] for other in range(size)])
    assert floats.dtype == np.float64


def test_the_objects_of_all_ranks_in_rank_order(hvd, rank, size):
    assert objects_of_ranks((rank, "x" * rank), "rank_facts (objects)") == [(i, "x" * i) for i in range(size)]


def test_one_rank_warns_of_what_all_know(hvd, rank):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warn_on_rank_zero("all ranks know")
    assert [(str(each.message), each.filename) for each in caught] == ([] if rank else [("all ranks know", __file__)])


def test_the_facts_of_all_ranks(hvd, rank, size):
    found = facts_of_ranks({"rank": rank}, "rank_facts (facts)", "`fit`")
    assert found == [{"rank": other} for other in range(size)]


def test_an_error_of_one_rank_is_raised_on_all(hvd, rank, size):
    facts = {"error": "no data"} if rank == 1 else {"rank": rank}
    with pytest.raises(RuntimeError, match="`fit` failed on rank 1: no data"):
        facts_of_ranks(facts, "rank_facts (error)", "`fit`")
