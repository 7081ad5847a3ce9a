"""A tape of ours and a wrapped optimizer in one step: one reduction and a warning, or an error."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

import smddp_tf.keras as hvk
from smddp_tf.gradients import reduced_once
from tests.native_module import core
from tests.support.keras_training import dense_model, flat_weights
from tests.variants import combined, in_full

pytestmark = [pytest.mark.ranks("2"), pytest.mark.usefixtures("several_ranks")]

MESSAGE = "would be reduced again.*the variable '.*kernel'"


def data(rank: int):
    random = np.random.default_rng(rank)
    return random.normal(size=(4, 6)).astype(np.float32), random.normal(size=(4, 3)).astype(np.float32)


def gradients(hvd, model, x, y, of_ours: bool = True):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(model(x, training=True) - y))
    tape = hvd.DistributedGradientTape(tape) if of_ours else tape
    return tape.gradient(loss, model.trainable_variables)


def clipped_one_by_one(grads):
    return [tf.clip_by_norm(tf.cast(tf.cast(grad, tf.float64), tf.float32), 0.1) for grad in grads]


ARITHMETIC = {
    "as they are": lambda grads: grads,
    "clip_by_norm": clipped_one_by_one,
    "global norm": lambda grads: tf.clip_by_global_norm(grads, 0.1)[0],
    "clip_by_value": lambda grads: [tf.clip_by_value(-grad / 3.0 + 1e-6, -0.1, 0.1) for grad in grads],
    "where": lambda grads: [tf.where(tf.reduce_all(tf.math.is_finite(grad)), grad, 0.0) for grad in grads],
}


WAYS = [
    *(("plain", each) for each in ARITHMETIC),
    *((each, "clip_by_norm") for each in ("xla", *in_full("scaled", "accumulating"))),
]


@pytest.mark.parametrize(("way", "op"), combined(WAYS, [hvk.Average, hvk.Sum]))
def test_in_a_graph(hvd, rank, mpi, way, op):
    kind, arithmetic = way
    model, other = dense_model(), dense_model()
    optimizer = keras.optimizers.SGD(0.1, gradient_accumulation_steps=2 if kind == "accumulating" else None)
    optimizer = hvk.DistributedOptimizer(optimizer, op=op)
    if kind == "scaled":
        optimizer = keras.optimizers.LossScaleOptimizer(optimizer)

    @tf.function(jit_compile=kind == "xla")
    def step(x, y):
        grads = ARITHMETIC[arithmetic](gradients(hvd, model, x, y))
        optimizer.apply_gradients(zip(grads, model.trainable_variables))

    if op == hvk.Sum:
        with pytest.raises(ValueError, match=MESSAGE):
            step(*data(rank))
        return
    before = core().stats()["planned_buckets"]
    step(*data(rank))
    reductions = core().stats()["planned_buckets"] - before
    if kind == "accumulating":
        step(*data(rank))
    else:
        assert reductions == 1
    grads = ARITHMETIC[arithmetic](gradients(hvd, other, *data(rank)))
    keras.optimizers.SGD(0.1).apply(grads, other.trainable_variables)
    if kind != "scaled":  # where the gradients are taken for those of a scaled loss
        np.testing.assert_allclose(flat_weights(model), flat_weights(other), rtol=1e-5)
    assert all(np.array_equal(flat_weights(model), each) for each in mpi.allgather(flat_weights(model)))


@pytest.mark.parametrize("kind", ["eager", "fit", "inner function"])
def test_elsewhere(hvd, rank, kind):
    class Model(keras.Sequential):
        def train_step(self, batch):
            grads = gradients(hvd, self, *batch)
            self.optimizer.apply(grads, self.trainable_variables)
            return {"loss": 0.0}

    model = Model(dense_model().layers)
    wrapped = hvk.DistributedOptimizer(keras.optimizers.SGD(0.1), backward_passes_per_step=2, op=hvk.Sum)
    model.compile(wrapped, run_eagerly=False)

    @tf.function
    def step(x, y):
        grads = gradients(hvd, model, x, y)
        tf.function(lambda: model.optimizer.apply(grads, model.trainable_variables))()

    ways = {
        "eager": lambda: model.train_step(data(rank)),
        "fit": lambda: model.fit(*data(rank), verbose=0),
        "inner function": lambda: step(*data(rank)),
    }
    with pytest.raises(ValueError, match=MESSAGE):
        ways[kind]()


@pytest.mark.parametrize("eagerly", [False, True], ids=["graph", "eager"])
def test_both_in_one_program(hvd, rank, size, eagerly):
    """A GAN with one network in each way; and a tape whose gradients only scale the others."""
    critic, generator = dense_model(), dense_model()
    plain = keras.optimizers.SGD(0.1)
    wrapped = hvk.DistributedOptimizer(keras.optimizers.SGD(0.1))

    def step(x, y):
        plain.apply(gradients(hvd, critic, x, y), critic.trainable_variables)
        wrapped.apply(gradients(hvd, generator, x, y, of_ours=False), generator.trainable_variables)

    def looking(x, y):
        norm = tf.linalg.global_norm(gradients(hvd, generator, x, y))
        grads = [grad / norm for grad in gradients(hvd, generator, x, y, of_ours=False)]
        wrapped.apply(grads, generator.trainable_variables)

    for function in (step, looking):
        function = function if eagerly else tf.function(function)
        for _ in range(2):
            function(*data(rank))


@pytest.mark.parametrize("eagerly", [False, True], ids=["graph", "eager"])
def test_weights_that_were_made_from_reduced_gradients(hvd, eagerly):
    """MAML: an inner step with the tape's gradients, and the wrapped optimizer for those of the outer loss."""
    weights = [keras.Variable(np.ones(shape, np.float32), name="kernel") for shape in ((3, 2), (2,), (1,))]
    optimizer = hvk.DistributedOptimizer(keras.optimizers.SGD(0.1))
    optimizer.build(weights)

    def loss_of(values):
        return tf.add_n([tf.reduce_sum(value * value * value) for value in values])

    def step():
        with tf.GradientTape() as outer:
            with tf.GradientTape() as inner:
                loss = loss_of([weight + 0.0 for weight in weights])
            grads = hvd.DistributedGradientTape(inner).gradient(loss, [weight.value for weight in weights])
            loss = loss_of([weight - 0.1 * grad for weight, grad in zip(weights, grads)])
        optimizer.apply(outer.gradient(loss, [weight.value for weight in weights]), weights)

    (step if eagerly else tf.function(step))()
    # The inner step goes to 1 - 0.3 = 0.7, with a derivative of 1 - 0.6 = 0.4.
    for weight in weights:
        np.testing.assert_allclose(weight.numpy(), 1.0 - 0.1 * 3 * 0.7**2 * 0.4, rtol=1e-5)


def test_a_reduction_over_some_ranks_may_come_first(hvd, rank, size):
    variable = tf.Variable([1.0, 2.0])
    few, all_ranks = hvd.ProcessSet([0]), hvd.global_process_set
    few.process_set_id = 77  # as if it were in use
    grad = tf.constant([0.5, rank])
    other = tf.constant([0.5, rank])
    reduced_once.note([grad, None], few, hvk.Average)
    assert not reduced_once.by_tape([grad], [variable], (), all_ranks, hvk.Average)
    reduced_once.note([tf.IndexedSlices(grad, tf.constant([0, 1]))], all_ranks, hvk.Average)
    assert reduced_once.by_tape([grad, None], [variable] * 2, (), all_ranks, hvk.Average)
    for grads, op in (([grad, other], hvk.Average), ([grad], hvk.Sum), ([grad], None)):
        with pytest.raises(ValueError, match="would be reduced again"):
            reduced_once.by_tape(grads, [variable] * 2, (), all_ranks, op)
    reduced_once.note([other], all_ranks, hvk.Sum)
    with pytest.raises(ValueError, match="would be reduced again"):
        reduced_once.by_tape([other], [variable], (), all_ranks, hvk.Average)
