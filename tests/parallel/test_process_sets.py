"""Process sets: made together, used by their members beside one another, and told apart in every message.

The sets overlap: all ranks but the last, all but the first, the even and the odd ones.
"""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Iterator
from types import ModuleType

import numpy as np
import pytest
import tensorflow as tf

from tests.native.test_cluster_rows import adasum_tree
from tests.parallel.test_basics import BEFORE_INIT

Sets = dict[str, "object"]


def layout(size: int) -> dict[str, list[int]]:
    """Different parts of the ranks; at 2 ranks there are only two."""
    wanted = {
        "low": list(range(size - 1)),
        "high": list(range(1, size)),
        "even": list(range(0, size, 2)),
        "odd": list(range(1, size, 2)),
    }
    return {name: ranks for i, (name, ranks) in enumerate(wanted.items()) if ranks not in list(wanted.values())[:i]}


@pytest.fixture(scope="module")
def dynamic(hvd: ModuleType) -> Iterator[ModuleType]:
    hvd.shutdown()
    hvd.init(process_sets="dynamic")
    yield hvd
    hvd.shutdown()
    hvd.init()


@pytest.fixture(scope="module")
def sets(dynamic, size) -> Sets:
    """All the sets of `layout`, in use."""
    if size == 1:
        pytest.skip("one rank has no parts")
    return {name: dynamic.add_process_set(ranks) for name, ranks in layout(size).items()}


@pytest.fixture
def restartable(hvd: ModuleType):
    """A test may stop the session and start others. The tests of this file that need `sets` come before."""
    hvd.shutdown()
    yield hvd
    hvd.shutdown()
    hvd.init()


def value_of(rank: int, length: int = 3) -> np.ndarray:
    return (rank + 1) * np.arange(1, length + 1, dtype=np.float32)


def mine(sets: Sets) -> list:
    return [process_set for process_set in sets.values() if process_set.included()]


# --- before there are sets ---


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
    with pytest.raises(ValueError, match="There is no process set 999"):
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
        words = rf"Mismatched allreduce tensor shapes: rank 1 has \[2\], rank {last} has \[3\]"
        with pytest.raises(tf.errors.FailedPreconditionError, match=f"(?i){words}"):
            hvd.allreduce(tf.ones(3 if rank == last else 2), process_set=high)
        with pytest.raises(
            tf.errors.FailedPreconditionError, match=f"root ranks: rank 1 has 1, rank {last} has {last}"
        ):
            hvd.broadcast(tf.ones(2), last if rank == last else 1, process_set=high)


@pytest.mark.parametrize("mode", ["eager", "graph"])
def test_gradients_of_collectives(hvd, rank, sets, mode):
    run = tf.function if mode == "graph" else lambda function: function
    for process_set in mine(sets):
        ranks, root = process_set.ranks, process_set.ranks[-1]

        @run
        def body(x, process_set=process_set, root=root):
            with tf.GradientTape(persistent=True) as tape:
                tape.watch(x)
                total = hvd.allreduce(x, op=hvd.Sum, process_set=process_set) * (rank + 1.0)
                sent = hvd.broadcast(x, root, process_set=process_set) * (rank + 1.0)
                rows = hvd.allgather(x, process_set=process_set)
                rows *= tf.range(1.0, tf.cast(tf.size(rows), tf.float32) + 1.0)
            return tape.gradient(total, x), tape.gradient(sent, x), tape.gradient(rows, x)

        total, sent, rows = body(tf.ones([2]))
        weights = [r + 1.0 for r in ranks]
        np.testing.assert_allclose(total, [sum(weights)] * 2, rtol=1e-6)
        np.testing.assert_allclose(sent, [np.mean(weights) if rank == root else 0.0] * 2, rtol=1e-6)
        np.testing.assert_allclose(rows, [2 * ranks.index(rank) + 1.0, 2 * ranks.index(rank) + 2.0], rtol=1e-6)


@pytest.mark.parametrize("mode", ["eager", "graph"])
def test_rows_among_the_members(hvd, rank, sets, mode):
    """Alltoall, reducescatter, grouped allgather and Adasum, and what comes back through them."""
    run = tf.function if mode == "graph" else lambda function: function
    for process_set in mine(sets):
        ranks = process_set.ranks
        place, members = ranks.index(rank), len(ranks)

        @run
        def body(x, process_set=process_set, place=place, members=members):
            splits = [0] * (members - 1) + [3]
            with tf.GradientTape() as tape:
                tape.watch(x)
                sent, counts = hvd.alltoall(x, splits, process_set=process_set)
                rows = hvd.reducescatter(tf.tile(x, [members]), op=hvd.Sum, process_set=process_set)
                [scaled] = hvd.grouped_reducescatter([tf.tile(x, [members])], process_set=process_set)
                gathered, _ = hvd.grouped_allgather([x, x[:place]], process_set=process_set)
                loss = tf.reduce_sum(sent) + tf.reduce_sum(rows) + tf.reduce_sum(scaled) + tf.reduce_sum(gathered)
            adasum = hvd.allreduce(x, op=hvd.Adasum, process_set=process_set)
            return sent, counts, rows, scaled, gathered, adasum, tape.gradient(loss, x)

        sent, counts, rows, scaled, gathered, adasum, gradient = body(tf.constant(value_of(rank)))
        values = [value_of(r) for r in ranks]
        last = place == members - 1
        np.testing.assert_array_equal(sent, np.concatenate(values) if last else [])
        np.testing.assert_array_equal(counts, [3 if last else 0] * members)
        np.testing.assert_allclose(rows, np.sum(values, axis=0))
        np.testing.assert_allclose(scaled, np.mean(values, axis=0))
        np.testing.assert_array_equal(gathered, np.concatenate(values))
        np.testing.assert_allclose(adasum, adasum_tree(values), rtol=1e-5)
        np.testing.assert_allclose(gradient, np.full(3, 1.0 + members**2 + members + 1.0))


@pytest.mark.parametrize("mode", ["eager", "graph", "xla"])
def test_tape_reduces_among_the_members_and_leaves_the_others_alone(hvd, rank, sets, mode):
    """A tape on every set in one function, all with the same list of gradients: as many plans of one key."""
    dense, table = tf.Variable([1.0, 2.0]), tf.Variable(tf.ones([4, 2]))

    def gradients(process_set):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(dense * dense) + tf.reduce_sum(tf.gather(table, [rank % 4, rank % 4]))
            loss *= rank + 1.0
        tape = hvd.DistributedGradientTape(tape, process_set=process_set)
        grads = tape.gradient(loss, [dense, table])
        return grads[0], tf.convert_to_tensor(grads[1])

    def body():
        return [gradients(process_set) for process_set in sets.values()]

    step = {"eager": body, "graph": tf.function(body), "xla": tf.function(body, jit_compile=True)}[mode]
    for _ in range(3):
        for process_set, (of_dense, of_table) in zip(sets.values(), step()):
            ranks = process_set.ranks if process_set.included() else [rank]
            np.testing.assert_allclose(of_dense, np.mean([r + 1.0 for r in ranks]) * np.array([2.0, 4.0]), rtol=1e-6)
            expected = np.zeros([4, 2])
            for r in ranks:
                expected[r % 4] += 2 * (r + 1.0) / len(ranks)
            np.testing.assert_allclose(of_table, expected, rtol=1e-6)


def test_optimizer_reduces_among_the_members(hvd, rank, sets):
    import keras

    from smddp_tf.keras.optimizer.wrapping import reducer_on

    for process_set in sets.values():
        wrapped = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0), process_set=process_set)
        for optimizer in (wrapped, copy.deepcopy(wrapped), type(wrapped).from_config(wrapped.get_config())):
            variable = keras.Variable([1.0, 1.0])
            assert reducer_on(optimizer).settings.process_set is process_set
            optimizer.apply([tf.constant(value_of(rank, 2))], [variable])
            ranks = process_set.ranks if process_set.included() else [rank]
            np.testing.assert_allclose(variable, 1.0 - np.mean([value_of(r, 2) for r in ranks], 0), rtol=1e-6)


def test_local_gradients_and_sessions_among_the_members(hvd, rank, sets):
    """A local gradient is divided by the number of members; outside a set nothing is."""
    v1 = tf.compat.v1
    for process_set in sets.values():
        ranks = process_set.ranks if process_set.included() else [rank]
        mean = np.mean([r + 1.0 for r in ranks])
        shared, mine = tf.Variable(0.0), tf.Variable(0.0)
        with tf.GradientTape() as tape:
            loss = (shared + mine) * (rank + 1.0)
        tape = hvd.DistributedGradientTape(tape, process_set=process_set)
        tape.register_local_source(mine)
        np.testing.assert_allclose(tape.gradient(loss, [shared, mine]), [mean, (rank + 1.0) / len(ranks)], rtol=1e-6)
        with tf.Graph().as_default(), v1.Session() as session:
            w = v1.Variable(0.0)
            optimizer = hvd.DistributedOptimizer(v1.train.GradientDescentOptimizer(1.0), process_set=process_set)
            train = optimizer.minimize(w * (rank + 1.0))
            session.run(v1.global_variables_initializer())
            session.run(train)
            np.testing.assert_allclose(session.run(w), -mean, rtol=1e-6)
        if process_set.included():
            variables = [tf.Variable(float(rank)), tf.Variable(f"rank {rank}")]
            root = process_set.ranks[-1]
            number, text = hvd.broadcast_(variables, root, process_set=process_set)
            assert (number.numpy(), text.numpy().decode()) == (root, f"rank {root}")


def test_fit_with_an_optimizer_of_a_set(hvd, rank, sets):
    """The other ranks train at their own pace: another number of batches."""
    import keras

    low = sets["low"]
    ranks = low.ranks if low.included() else [rank]
    batches = 2 if low.included() else 3
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")])
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.01), process_set=low), "mse", jit_compile=False)
    x = np.full([2 * batches, 1], rank + 1.0, np.float32)
    model.fit(x, np.zeros_like(x), batch_size=2, verbose=0)
    factor = 1.0 - 0.01 * np.mean([2 * (r + 1.0) ** 2 for r in ranks])
    np.testing.assert_allclose(model.get_weights()[0], [[factor**batches]], rtol=1e-5)


def test_functions_that_xla_compiles(hvd, rank, sets):
    for process_set in mine(sets):
        values = np.array([value_of(r) for r in process_set.ranks])

        @tf.function(jit_compile=True)
        def body(x, process_set=process_set):
            with tf.GradientTape() as tape:
                tape.watch(x)
                mean = hvd.allreduce(x, process_set=process_set)
                rows = hvd.allgather(x[tf.newaxis], process_set=process_set)
                sent = hvd.broadcast(x, process_set.ranks[-1], process_set=process_set)
            return mean, rows, sent, tape.gradient(rows, x)

        mean, rows, sent, gradient = body(tf.constant(value_of(rank)))
        np.testing.assert_allclose(mean, values.mean(0), rtol=1e-6)
        np.testing.assert_array_equal(rows, values)
        np.testing.assert_array_equal(sent, values[-1])
        np.testing.assert_allclose(gradient, np.ones(3), rtol=1e-6)


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
        with pytest.raises(tf.errors.InvalidArgumentError, match=f"There is no process set {number}"):
            function()
    again = hvd.add_process_set(removed)
    assert again is removed
    assert again.process_set_id > number  # never that of another set: a graph may still hold it
    if again.included():
        assert hvd.allgather_object(rank, process_set=again) == again.ranks


def test_values_when_a_graph_runs(hvd, rank, size, sets):
    low = sets["low"]
    values = tf.function(
        lambda: [
            hvd.size_op(),
            hvd.size_op(process_set_id=low.process_set_id, name="of_low"),
            hvd.rank_op(name="mine"),
            hvd.local_size_op(),
            hvd.local_rank_op(),
            hvd.process_set_included_op(),
            hvd.process_set_included_op(process_set_id=low.process_set_id),
            hvd.process_set_included_op(999),
        ]
    )
    expected = [size, low.size(), rank, hvd.local_size(), hvd.local_rank(), 1, int(low.included()), -3]
    assert [int(value) for value in values()] == expected
    assert all(value.dtype == tf.int32 for value in values())
    with pytest.raises(ValueError, match="There is no process set 999"):
        hvd.size_op(999)
    with pytest.raises(NotImplementedError, match="jit_compile"):
        tf.function(hvd.rank_op, jit_compile=True)()


# --- sets from the start, and their end ---


def test_sets_given_to_init(restartable, rank, size, mpi):
    hvd = restartable
    if size == 1:
        pytest.skip("one rank has no parts")
    sets = {name: hvd.ProcessSet(ranks) for name, ranks in layout(size).items()}
    hvd.init(process_sets=list(sets.values()))
    assert [process_set.process_set_id for process_set in sets.values()] == list(range(1, len(sets) + 1))
    for process_set in mine(sets):
        assert hvd.allgather_object(rank, process_set=process_set) == process_set.ranks
    hvd.shutdown()
    for process_set in sets.values():
        assert (process_set.process_set_id, process_set.size(), process_set.included()) == (None, None, None)
    with pytest.raises(ValueError, match="in use|" + BEFORE_INIT):
        hvd.allreduce(tf.ones(2), process_set=sets["low"])

    for bad, words in (
        ([hvd.ProcessSet([0]), hvd.ProcessSet([0])], "exists already"),
        ([hvd.ProcessSet([rank % 2])], r"Mismatched process sets: rank 0 has ranks \[0\], rank 1 has ranks \[1\]"),
        ([hvd.ProcessSet([0])] if rank == 0 else None, "rank 1 has no process sets"),
        ([[0]], "`process_sets` must be a list"),
        ("static", "`process_sets` must be a list"),
    ):
        with pytest.raises(ValueError, match=words):
            hvd.init(process_sets=bad)
        assert not hvd.is_initialized()


def test_communicators_of_mpi4py(restartable, rank, size, mpi):
    """Every rank brings its own part of a split: all parts become sets. Ranks backwards: the communicator's order."""
    from mpi4py import MPI

    hvd = restartable
    if size == 1:
        pytest.skip("one rank has no parts")
    hvd.init(process_sets="dynamic")
    color = min(rank, 2)  # 0, 1, and the rest
    part = mpi.Split(MPI.UNDEFINED if size == 3 and color == 2 else color, key=-rank)
    mine = hvd.add_process_set(hvd.ProcessSet(part))
    if part == MPI.COMM_NULL:
        assert mine.process_set_id is None
    else:
        assert mine.mpi_comm is part
        assert mine.ranks == (list(reversed(range(2, size))) if color == 2 else [rank])
        assert mine.rank() == part.Get_rank()
        assert hvd.allgather_object(rank, process_set=mine) == mine.ranks
        part.Free()
    assert len(hvd.process_set_ids()) == 1 + (3 if size > 3 else 2)


def test_communicators_given_to_init(restartable, rank, size, mpi):
    """The first is everybody, with ranks backwards; the others are sets, whose ranks are those of the first."""
    hvd = restartable
    if size == 1:
        pytest.skip("one rank has no parts")
    backwards, parts = mpi.Split(0, key=-rank), mpi.Split(rank % 2, key=rank)
    hvd.init(comm=[backwards, parts])
    me = hvd.rank()
    assert me == size - 1 - rank
    sets = hvd.get_process_set_ids_and_ranks()
    expected = [[size - 1 - r for r in range(first, size, 2)] for first in (0, 1)]
    assert sorted(ranks for number, ranks in sets.items() if number > 0) == sorted(expected)
    assert sets[0] == list(range(size))
    hvd.shutdown()
    backwards.Free()
    parts.Free()


def test_values_follow_the_session(restartable, size):
    hvd = restartable
    values = tf.function(lambda: (hvd.size_op(), hvd.process_set_included_op()))
    hvd.init()
    assert [int(value) for value in values()] == [size, 1]
    hvd.shutdown()
    with pytest.raises(tf.errors.FailedPreconditionError, match=BEFORE_INIT):
        values()


def test_sets_end_with_the_session_of_all_ranks(restartable, rank, size):
    """Rank 0 leaves with something under way: that ends the session of all, and the sets without rank 0 as well."""
    hvd = restartable
    if size == 1:
        pytest.skip("nobody is left")
    hvd.init(process_sets="dynamic")
    high = hvd.add_process_set(range(1, size))
    if rank == 0:
        alone = threading.Thread(target=lambda: _expect_error(lambda: hvd.allreduce(tf.ones(2), name="never")))
        alone.start()
        time.sleep(0.3)
        hvd.shutdown()
        alone.join(30)
        return

    def until_it_ends():
        for _ in range(3000):
            hvd.allreduce(tf.ones(2), process_set=high)
            time.sleep(0.01)

    with pytest.raises(tf.errors.OpError, match="The session of all ranks failed, and this process set with it: Rank"):
        until_it_ends()
    with pytest.raises(Exception, match="Rank 0"):
        hvd.add_process_set([1])


def _expect_error(call) -> None:
    with pytest.raises(tf.errors.OpError):
        call()
