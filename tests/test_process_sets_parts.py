"""Plans that reduce to parts, in a process set."""

from __future__ import annotations

import numpy as np
import pytest

from smddp_tf import process_sets
from tests.native_module import core
from tests.support.parts import brought, cut, reducer

pytestmark = pytest.mark.ranks("2", "2+2", "2+1")


def test_in_a_process_set(sets, hvd, rank, size):
    """That of the even ranks, of which some have a node of their own."""
    members = sets["even" if size > 2 else "low"]
    if not members.included():
        return
    number, parts = members.process_set_id, members.size()
    with process_sets.scope(number):
        tensors = brought(rank)
        key = "in a set"
        mine = reducer(parts, key, process_set=number)(*tensors)
        for part, whole in zip(mine, hvd.grouped_allreduce(tensors, process_set=members)):
            expected = cut(whole.numpy(), parts, core().places_in_parts(number, parts)[members.rank()])
            np.testing.assert_array_equal(part.numpy().view(np.uint32), expected.view(np.uint32))
    assert core().places_in_parts(number, parts)[members.rank()] == members.rank()
