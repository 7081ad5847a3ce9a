"""smddp_tf.elastic under mpirun: whatever is raised, and wherever, training ends as if nothing had been."""

from __future__ import annotations

import shutil
import tempfile

import keras
import numpy as np
import pytest
import tensorflow as tf

import smddp_tf.keras as hvd_keras
from smddp_tf import elastic
from smddp_tf._native import loader
from smddp_tf.elastic.state import HostUpdateResult
from smddp_tf.exceptions import HorovodInternalError, HostsUpdatedInterrupt
from tests.support.keras_training import FEATURES, ROWS_PER_RANK, dense_data, part_of
from tests.support.trouble import Once

pytestmark = pytest.mark.ranks("2", "2+2")

STEPS = 8
COMMIT_EVERY = 3


def model_with_dropout() -> keras.Model:
    keras.utils.set_random_seed(7)
    return keras.Sequential(
        [keras.Input((FEATURES,)), keras.layers.Dense(8), keras.layers.Dropout(0.3, seed=5), keras.layers.Dense(3)]
    )


def train(hvd, rank, size, optimizer, trouble: Once, scaled: bool = False):
    """Trains in a loop of its own. Eager, because tracing is all that would take time."""
    model = model_with_dropout()
    optimizer = hvd_keras.DistributedOptimizer(optimizer, backward_passes_per_step=1 if scaled else 2)
    outer = keras.optimizers.LossScaleOptimizer(optimizer, initial_scale=4.0, dynamic_growth_steps=2)
    outer = outer if scaled else optimizer
    x, y = (tf.constant(part_of(array, rank, size)) for array in dense_data(size, STEPS))

    @elastic.run
    def loop(state):
        def step(x, y):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.square(model(x, training=True) - y))
                loss = outer.scale_loss(loss)
            outer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)

        while state.batch < STEPS:
            first = state.batch * ROWS_PER_RANK
            step(x[first : first + ROWS_PER_RANK], y[first : first + ROWS_PER_RANK])
            trouble(state.batch)
            state.batch += 1
            if state.batch % COMMIT_EVERY == 0:
                state.commit()
        return state

    state = elastic.TensorFlowKerasState(model, outer, batch=0, kind="dense")
    resets = []
    state.register_reset_callbacks([lambda: resets.append(hvd.size())])
    assert loop(state) is state
    return model, outer, resets


def everything(model, optimizer) -> list[np.ndarray]:
    return [np.asarray(variable) for variable in (*model.variables, *optimizer.variables)]


@pytest.mark.deadline(240)
@pytest.mark.parametrize("case", ["adam, 2 passes", "loss scale"])
def test_training_ends_as_if_nothing_had_been(hvd, rank, size, case):
    scaled = case == "loss scale"

    def make_optimizer():
        return keras.optimizers.SGD(0.1, momentum=0.9) if scaled else keras.optimizers.Adam(0.01)

    model, optimizer, resets = train(hvd, rank, size, make_optimizer(), Once(-1, None), scaled)
    expected = everything(model, optimizer)
    assert resets == []

    trouble = Once(4, HorovodInternalError("a rank has gone"))
    model, optimizer, resets = train(hvd, rank, size, make_optimizer(), trouble, scaled)
    assert trouble.seen == [0, 1, 2, 3, 4, 3, 4, 5, 6, 7]  # back to the commit after 3 steps
    assert resets == [size]
    for got, want in zip(everything(model, optimizer), expected):
        np.testing.assert_array_equal(got, want)


def test_one_rank_fails_and_the_others_notice(hvd, rank, size):
    """The others wait in an allreduce; what the engine tells them means the same as HorovodInternalError."""
    if size == 1:
        pytest.skip("needs two ranks")
    trouble = Once(4, HorovodInternalError("only here") if rank == size - 1 else None)
    state = elastic.ObjectState(batch=0, total=0.0)

    @elastic.run
    def loop(state):
        while state.batch < STEPS:
            trouble(state.batch)
            state.total += float(hvd.allreduce(tf.constant(rank + state.batch + 1.0), op=hvd.Sum, name="elastic.total"))
            state.batch += 1
            state.commit()
        return state.total

    total = loop(state)
    assert total == sum(size * (batch + 1) + size * (size - 1) / 2 for batch in range(STEPS))
    assert trouble.seen.count(4) == 2
    assert hvd.is_initialized()


def test_a_function_traced_before_goes_on(hvd, rank, size):
    """What a script traces once, outside of the training function, works in the next session too."""
    variable = tf.Variable([1.0, 2.0])
    optimizer = hvd_keras.DistributedOptimizer(keras.optimizers.SGD(1.0))
    traced = []

    @tf.function
    def step(x):
        traced.append(True)
        optimizer.apply_gradients([(x, variable)])

    trouble = Once(3, HorovodInternalError("in a step"))

    @elastic.run
    def loop(state):
        while state.batch < 5:
            step(tf.fill([2], state.batch * (rank + 1.0)))
            trouble(state.batch)
            state.batch += 1
            state.commit()

    optimizer.build([variable])
    loop(elastic.TensorFlowState([variable, *optimizer.variables], batch=0))
    assert len(traced) == 1
    assert trouble.seen == [0, 1, 2, 3, 3, 4]
    np.testing.assert_allclose(variable, np.array([1.0, 2.0]) - 10 * (size + 1) / 2)


@pytest.mark.parametrize("skip_sync", [False, True])
def test_interrupts_keep_the_state(hvd, rank, skip_sync):
    """HostsUpdatedInterrupt restores nothing; with `skip_sync` the ranks do not even compare notes."""
    variable = tf.Variable([rank + 1.0])
    state = elastic.TensorFlowState([variable], step=rank)
    raised = []

    @elastic.run
    def loop(state):
        if not raised:
            assert (float(variable[0]), state.step) == (1.0, 0), "sync gives all ranks what rank 0 has"
            variable.assign([10.0 * (rank + 1)])
            state.step = 5 + rank
            raised.append(True)
            raise HostsUpdatedInterrupt(skip_sync)
        return float(variable[0]), state.step

    # Attributes that were not committed go back in a sync, on rank 0 as well.
    assert loop(state) == ((10.0 * (rank + 1), 5 + rank) if skip_sync else (10.0, 0))


def test_variables_of_a_session(hvd, rank):
    """TensorFlow 1: the values live in a session."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        variable = tf.compat.v1.get_variable("x", initializer=rank + 1.0, use_resource=True)
        session.run(tf.compat.v1.global_variables_initializer())
        state = elastic.TensorFlowState(session=session, step=0)
        state.sync()
        assert session.run(variable) == 1.0
        variable.load(7.0, session)
        state.restore()
        assert session.run(variable) == 1.0


def test_messages_about_hosts_reach_all_ranks_at_one_commit(hvd, rank):
    state = elastic.ObjectState(step=1)
    state.commit()
    if rank == 0:
        state.on_hosts_updated(1, HostUpdateResult.added)
        state.on_hosts_updated(2, HostUpdateResult.removed)
    state.step = 2
    with pytest.raises(HostsUpdatedInterrupt) as caught:
        state.commit()
    assert not caught.value.skip_sync
    state.step = 3
    state.restore()
    assert state.step == 2
    if rank == 0:
        state.on_hosts_updated(2, HostUpdateResult.added)  # not newer
    state.commit()
    if rank == 0:
        state.on_hosts_updated(3, HostUpdateResult.removed)
    with pytest.raises(HostsUpdatedInterrupt) as caught:
        state.check_host_updates()
    assert caught.value.skip_sync
    state.on_hosts_updated(4)
    state.on_reset()
    state.commit()


def test_other_errors_pass(hvd, rank, size):
    state = elastic.ObjectState(bcast_object=lambda obj: obj, get_rank=lambda: rank)
    calls = []

    @elastic.run
    def wrong(state, error):
        calls.append(error)
        raise error

    engine_error = loader.core().EngineError
    passing = [
        ValueError("gave up a step"),
        engine_error("Mismatched ALLREDUCE tensor shapes"),
        tf.errors.FailedPreconditionError(None, None, "Mismatched gradient plans"),
        tf.errors.UnavailableError(None, None, "failed to connect to all addresses"),
    ]
    for error in passing:
        with pytest.raises(type(error)):
            wrong(state, error)
    assert len(calls) == len(passing)
    missing = engine_error("... has waited for 60 s: missing on rank 1")
    assert not elastic.running.is_lost_session(missing)  # the text decides nothing
    missing.reason = "timed_out"
    assert elastic.running.is_lost_session(missing)
    assert elastic.running.is_lost_session(tf.errors.AbortedError(None, None, "Rank 1 ... [smddp:step_given_up]"))
    assert not elastic.running.is_lost_session(tf.errors.AbortedError(None, None, "Rank 1 gave up a step: ..."))


def test_a_state_needs_a_built_model_and_an_optimizer(hvd):
    with pytest.raises(ValueError, match="must be built"):
        elastic.KerasState(keras.Sequential([keras.layers.Dense(1)]), keras.optimizers.SGD())
    with pytest.raises(ValueError, match="needs an optimizer"):
        elastic.KerasState(model_with_dropout())


@pytest.mark.deadline(240)
def test_training_goes_on_from_a_commit_on_disk(hvd, rank, size):
    """A second model, with other weights at first, as in a job that is started again."""
    folder = hvd.broadcast_object(tempfile.mkdtemp() if rank == 0 else None, name="elastic.folder")
    x, y = (tf.constant(part_of(array, rank, size)) for array in dense_data(size, STEPS))

    def train_to(end: int, seed: int) -> tuple[keras.Model, keras.Optimizer, int]:
        model = model_with_dropout()
        for variable in model.trainable_variables:
            variable.assign_add(tf.fill(variable.shape, float(seed)))
        optimizer = hvd_keras.DistributedOptimizer(keras.optimizers.Adam(0.01))
        state = elastic.TensorFlowKerasState(model, optimizer, batch=0)
        state.commit_to(folder)
        begun = []

        @elastic.run
        def loop(state):
            begun.append(state.batch)
            while state.batch < end:
                first = state.batch * ROWS_PER_RANK
                with tf.GradientTape() as tape:
                    out = model(x[first : first + ROWS_PER_RANK], training=True)
                    loss = tf.reduce_mean(tf.square(out - y[first : first + ROWS_PER_RANK]))
                optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
                state.batch += 1
                if state.batch % COMMIT_EVERY == 0:
                    state.commit()

        loop(state)
        return model, optimizer, begun[0]

    try:
        *_, begun = train_to(5, seed=0)  # the last commit is that of batch 3
        assert begun == 0
        *again, begun = train_to(STEPS, seed=1)
        assert begun == 3
        shutil.rmtree(folder) if rank == 0 else None
        hvd.barrier()
        *expected, begun = train_to(STEPS, seed=0)
        assert begun == 0
        for got, want in zip(everything(*again), everything(*expected)):
            np.testing.assert_array_equal(got, want)
        hvd.barrier()
        other = elastic.TensorFlowState([tf.Variable([1.0, 2.0])], batch=0)
        other.commit_to(folder)
        with pytest.raises(OSError, match="The commit is of another model"):
            other.resume()
    finally:
        if rank == 0:
            shutil.rmtree(folder, ignore_errors=True)
