"""The settings of a tape or an optimizer: taken from arguments by name, checked, and what they refuse."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from smddp_tf.gradients.options import ReduceOptions, check_groups


def test_settings_are_taken_by_name_and_others_left_alone() -> None:
    options = ReduceOptions.of({"op": 1, "backward_passes_per_step": np.int64(3), "optimizer": object()})
    assert options == ReduceOptions(op=1, backward_passes_per_step=3)
    assert type(options.backward_passes_per_step) is int


@pytest.mark.parametrize("passes", [0, -1, 1.5, True, "2", None])
def test_numbers_of_passes_that_are_none(passes: object) -> None:
    with pytest.raises(ValueError, match=r"integer of at least 1\. Received: backward_passes_per_step="):
        ReduceOptions.of({"backward_passes_per_step": passes})


def test_the_older_name_of_partition_state() -> None:
    with pytest.warns(DeprecationWarning, match="`partition_state` now"):
        assert ReduceOptions.of({"shard": "node"}).partition_state == "node"
    assert ReduceOptions.of({"partition_state": 2, "shard": None}).partition_state == 2


@pytest.mark.parametrize("groups", [None, 1, np.int32(7), [], [[tf.Variable(1.0)], []]])
def test_groups(groups: object) -> None:
    check_groups(groups)


@pytest.mark.parametrize("groups", [0, -2, True, 1.0, "ab", [1], [["a"]]])
def test_what_are_no_groups(groups: object) -> None:
    with pytest.raises(ValueError, match="`groups` must be a positive integer or a list of lists of variables"):
        check_groups(groups)


def test_the_older_name_of_groups() -> None:
    with pytest.warns(DeprecationWarning, match="write `groups`"):
        check_groups(None, 3)
    with pytest.warns(DeprecationWarning), pytest.raises(ValueError, match="groups=-3"):
        check_groups(None, -3)


def test_passes_are_added_up_of_dense_gradients() -> None:
    table, weight = tf.Variable(tf.zeros([4, 2])), tf.Variable([1.0])
    rows = tf.IndexedSlices(tf.constant([[1.0, 2.0], [10.0, 20.0]]), tf.constant([3, 3]), tf.constant([4, 2]))
    of_weight = tf.constant([5.0])
    found = ReduceOptions(sparse_as_dense=True).dense([rows, None, of_weight], [table, weight, weight])
    np.testing.assert_array_equal(found[0], [[0, 0], [0, 0], [0, 0], [11, 22]])
    assert found[1] is None
    assert found[2] is of_weight
    with pytest.raises(ValueError, match=r"backward_passes_per_step=2 and tf\.IndexedSlices for variable"):
        ReduceOptions(backward_passes_per_step=2).dense([rows], [table])
