"""Process sets: made together, used by their members beside one another, and told apart in every message."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import tensorflow as tf

from tests.reasons import raises
from tests.support.process_sets import layout, mine, value_of

pytestmark = pytest.mark.ranks("2", "2+2", "2+1")


def test_only_where_it_was_asked_for(hvd, size):
    for change in (lambda: hvd.add_process_set([0]), lambda: hvd.add_process_set(hvd.ProcessSet([0]))):
        with pytest.raises(ValueError, match="HOROVOD_DYNAMIC_PROCESS_SETS=1"):
            change()
    assert hvd.get_process_set_ids_and_ranks() == {0: list(range(size))}


@pytest.mark.parametrize("bad", [[], [0, 0], [-1], [0.5], ["zero"], 3, None, "world"], ids=repr)
def test_what_is_no_set(hvd, bad):
    with pytest.raises(ValueError, match="process set"):
        hvd.ProcessSet(bad)


def test_the_global_set(hvd, rank, size):
    everybody = hvd.global_process_set
    assert (everybody.process_set_id, everybody.ranks, everybody.mpi_comm) == (0, list(range(size)), None)
    assert (everybody.size(), everybody.rank(), everybody.included()) == (size, rank, True)
    assert hvd.process_set_ids() == [0]
    assert hvd.remove_process_set(everybody) is False
    assert float(hvd.allreduce(tf.constant(rank + 1.0), op=hvd.Sum, process_set=everybody)) == size * (size + 1) / 2


def test_a_set_that_is_not_in_use(hvd):
    idle = hvd.ProcessSet([0])
    assert (idle.process_set_id, idle.ranks, idle.size(), idle.rank(), idle.included()) == (None, [0], None, None, None)
    for use in (
        lambda: hvd.allreduce(tf.ones(2), process_set=idle),
        lambda: hvd.allgather_object(1, process_set=idle),
        lambda: hvd.broadcast_variables([tf.Variable(1.0)], 0, process_set=idle),
    ):
        with pytest.raises(ValueError, match=r"not in use: ProcessSet\(process_set_id=None, ranks=\[0\]"):
            use()
    with pytest.raises(TypeError, match="`process_set` must be"):
        hvd.allreduce(tf.ones(2), process_set=[0])


# --- sets in use ---


def test_who_is_in_them(hvd, rank, size, sets, mpi):
    ranks_of = layout(size)
    numbers = {name: process_set.process_set_id for name, process_set in sets.items()}
    assert mpi.allgather(numbers) == [numbers] * size
    assert sorted(numbers.values()) == list(range(1, len(sets) + 1))
    assert hvd.get_process_set_ids_and_ranks() == {0: list(range(size)), **{numbers[n]: ranks_of[n] for n in sets}}
    for name, process_set in sets.items():
        assert process_set.ranks == ranks_of[name]
        assert process_set.size() == len(ranks_of[name])
        assert process_set.included() is hvd.is_process_set_included(numbers[name]) is (rank in ranks_of[name])
        if process_set.included():
            assert process_set.rank() == ranks_of[name].index(rank)
        else:
            with pytest.raises(ValueError, match=f"Rank {rank} is not a member .* process set {numbers[name]}"):
                process_set.rank()
    with pytest.raises(ValueError, match="999"):
        hvd.is_process_set_included(999)


def test_what_cannot_be_added_is_the_same_error_everywhere(hvd, rank, size, sets):
    low = sets["low"]
    for ranks, words in (
        (low.ranks, f"exists already: process set {low.process_set_id}"),
        (list(reversed(low.ranks)), "exists already"),
        (range(size), "exists already: process set 0, which is all ranks"),
        ([0, size], f"different ranks from 0 to {size - 1}. Received: \\[0, {size}\\]"),
        ([0] if rank == 0 else [1], r"Mismatched process sets: rank 0 has ranks \[0\], rank 1 has ranks \[1\]"),
    ):
        with pytest.raises(ValueError, match=words):
            hvd.add_process_set(ranks)
    with pytest.raises(ValueError, match="in use already"):
        hvd.add_process_set(low)
    if rank == 0:
        with pytest.raises(ValueError, match=r"rank 0 has ranks \[0\], rank 1 has to remove process set"):
            hvd.add_process_set([0])
    else:
        with pytest.raises(ValueError, match="Mismatched process sets"):
            hvd.remove_process_set(low)
    assert len(hvd.process_set_ids()) == len(sets) + 1


@pytest.mark.parametrize("mode", ["eager", "graph"])
def test_collectives_among_the_members(hvd, rank, sets, mode):
    run = tf.function if mode == "graph" else lambda function: function
    for process_set in mine(sets):
        ranks = process_set.ranks
        for length in (3, 5000):  # in a message, and in shared memory
            x = tf.constant(value_of(rank, length))
            values = np.array([value_of(r, length) for r in ranks])
            rows = tf.repeat(x[tf.newaxis], rank + 1, 0)

            @run
            def body(x, rows, process_set=process_set):
                reduce = {
                    op: hvd.allreduce(x, op=getattr(hvd, op), process_set=process_set)
                    for op in ("Average", "Sum", "Max")
                }
                group = hvd.grouped_allreduce([x, 2 * x], op=hvd.Sum, process_set=process_set)
                sent = [hvd.broadcast(x, root, process_set=process_set) for root in process_set.ranks]
                return reduce, group, hvd.allgather(rows, process_set=process_set), sent

            reduce, group, gathered, sent = body(x, rows)
            np.testing.assert_allclose(reduce["Average"], values.mean(0), rtol=1e-6)
            np.testing.assert_allclose(reduce["Sum"], values.sum(0), rtol=1e-6)
            np.testing.assert_array_equal(reduce["Max"], values.max(0))
            np.testing.assert_allclose(group[1], 2 * values.sum(0), rtol=1e-6)
            np.testing.assert_array_equal(gathered, np.repeat(values, [r + 1 for r in ranks], 0))
            for value, expected in zip(sent, values):
                np.testing.assert_array_equal(value, expected)


def test_state_and_objects_among_the_members(hvd, rank, sets):
    for process_set in mine(sets):
        root = process_set.ranks[-1]
        variable = tf.Variable(value_of(rank))
        hvd.broadcast_variables([variable], root, process_set=process_set)
        np.testing.assert_array_equal(variable, value_of(root))
        assert hvd.allgather_object({"rank": rank}, process_set=process_set) == [{"rank": r} for r in process_set.ranks]
        assert hvd.broadcast_object(f"from {rank}", root, process_set=process_set) == f"from {root}"
        hvd.barrier(process_set=process_set)


def test_side_by_side_under_one_name(hvd, rank, size, sets):
    """One function whose ops run at once: every set, and all ranks, under the same name; other sets on each rank."""
    x = tf.constant(value_of(rank, 2000))

    @tf.function
    def body():
        parts = [hvd.allreduce(x * i, op=hvd.Sum, name="same", process_set=s) for i, s in enumerate(mine(sets), 1)]
        unnamed = [hvd.allreduce(x, op=hvd.Sum, process_set=process_set) for process_set in mine(sets)]
        return parts, unnamed, hvd.allreduce(x, op=hvd.Sum, name="same"), hvd.allreduce(x, op=hvd.Sum)

    for _ in range(5):
        parts, unnamed, everybody, everybody_unnamed = body()
        for i, process_set in enumerate(mine(sets)):
            total = sum(value_of(r, 2000) for r in process_set.ranks)
            # Each member counts its own sets, so a set's factor differs between ranks; the sum does not.
            factors = [[s for s in sets.values() if r in s.ranks].index(process_set) + 1 for r in process_set.ranks]
            expected = sum(f * value_of(r, 2000) for f, r in zip(factors, process_set.ranks))
            np.testing.assert_allclose(parts[i], expected, rtol=1e-6)
            np.testing.assert_allclose(unnamed[i], total, rtol=1e-6)
        total = sum(value_of(r, 2000) for r in range(size))
        np.testing.assert_allclose(everybody, total, rtol=1e-6)
        np.testing.assert_allclose(everybody_unnamed, total, rtol=1e-6)


def test_two_threads_in_two_sets(hvd, rank, sets):
    failures = []

    def work(process_set):
        expected = sum(value_of(r, 1500) for r in process_set.ranks)
        for step in range(20):
            got = hvd.allreduce(value_of(rank, 1500), op=hvd.Sum, name=f"step {step}", process_set=process_set)
            if not np.allclose(got, expected):
                failures.append((process_set.process_set_id, step))

    threads = [threading.Thread(target=work, args=(process_set,)) for process_set in mine(sets)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(50)
    assert not failures
    assert not any(thread.is_alive() for thread in threads)


def test_a_rank_outside_is_told_so(hvd, rank, sets):
    outside = [process_set for process_set in sets.values() if not process_set.included()]
    for process_set in outside:
        words = (
            f"Rank {rank} is not a member of the provided process set: process set {process_set.process_set_id} "
            rf"has the ranks \{process_set.ranks}"
        )
        calls = (
            lambda process_set=process_set: hvd.allreduce(tf.ones(2), process_set=process_set),
            lambda process_set=process_set: hvd.allgather(tf.ones(2), process_set=process_set),
            lambda process_set=process_set: hvd.broadcast(tf.ones(2), process_set.ranks[0], process_set=process_set),
            lambda process_set=process_set: hvd.barrier(process_set=process_set),
        )
        for call in calls:
            for run in (call, tf.function(lambda call=call: [call(), 0.0][1:])):
                with pytest.raises(tf.errors.InvalidArgumentError, match=words[:70]):
                    run()
        with pytest.raises(ValueError, match=words):
            hvd.allgather_object(1, process_set=process_set)
    assert float(hvd.allreduce(tf.constant(1.0))) == 1.0  # nobody waits for what was refused


def test_messages_speak_of_global_ranks(hvd, rank, size, sets):
    high = sets["high"]
    if not high.included():
        return
    with pytest.raises(ValueError, match="a rank of the process set"):
        hvd.broadcast(tf.ones(2), 0, process_set=high)
    if high.size() > 1:
        last = size - 1
        shapes = rf"rank 1 has \[2\], rank {last} has \[3\]"
        with raises(tf.errors.FailedPreconditionError, "tensors_differ", match=shapes):
            hvd.allreduce(tf.ones(3 if rank == last else 2), process_set=high)
        roots = f"rank 1 has 1, rank {last} has {last}"
        with raises(tf.errors.FailedPreconditionError, "disagreement", match=roots):
            hvd.broadcast(tf.ones(2), last if rank == last else 1, process_set=high)


def test_a_set_that_is_removed(hvd, rank, size, sets):
    removed = hvd.add_process_set(hvd.ProcessSet([0])) if size > 2 else sets["low"]
    number, ranks = removed.process_set_id, removed.ranks
    function = tf.function(lambda: hvd.allreduce(tf.ones(2), name="late", process_set=removed))
    if removed.included():
        np.testing.assert_array_equal(function(), [1.0, 1.0])
    assert hvd.remove_process_set(removed) is True
    assert (removed.process_set_id, removed.ranks, removed.included()) == (None, ranks, None)
    assert hvd.remove_process_set(removed) is False
    assert number not in hvd.process_set_ids()
    if rank in ranks:
        with raises(tf.errors.InvalidArgumentError, "bad_argument", match=f"process set {number}"):
            function()
    again = hvd.add_process_set(removed)
    assert again is removed
    assert again.process_set_id > number  # never that of another set: a graph may still hold it
    if again.included():
        assert hvd.allgather_object(rank, process_set=again) == again.ranks
