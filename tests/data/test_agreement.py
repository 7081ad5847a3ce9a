"""What ranks must agree on about their data."""

from __future__ import annotations

from smddp_tf.data.agreement import agree, rank_and_size


def test_alone_nobody_has_to_agree():
    assert agree(rank_and_size(0, 1), {}, shuffled=False, seed=4) is None
    assert agree(rank_and_size(0, 1), {}, shuffled=True, seed=4) == 4
    assert agree(rank_and_size(0, 1), {}, shuffled=True, seed=None) is not None
