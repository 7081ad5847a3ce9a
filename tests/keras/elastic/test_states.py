"""States of a Keras model: whatever is raised, training ends as if nothing had been; from a commit on disk, too."""

from __future__ import annotations

import shutil
import tempfile

import keras
import numpy as np
import pytest
import tensorflow as tf

import smddp_tf.keras as hvd_keras
from smddp_tf import elastic
from smddp_tf.exceptions import HorovodInternalError
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


def test_a_list_of_variables_does_not_move_to_other_processes(hvd, monkeypatch):
    """Where some are parts, in a job in which other processes have the ranks: only the state of a model knows how."""
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(8)])
    sharded = hvd_keras.DistributedOptimizer(keras.optimizers.Adam(0.1), partition_state="world")
    sharded.build(model.trainable_variables)
    state = elastic.TensorFlowState(sharded.variables)
    state.sync()
    monkeypatch.setattr("smddp_tf.rendezvous.rounds.has_changed", lambda: True)
    elastic.TensorFlowState(model.variables).sync()
    with pytest.raises(RuntimeError, match="other processes are the ranks now"):
        state.sync()
