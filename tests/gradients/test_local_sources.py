"""Model parallelism: each rank keeps another number of variables for itself, and the ranks share the others."""

from __future__ import annotations

import contextlib

import keras
import numpy as np
import pytest
import tensorflow as tf

import smddp_tf.keras as hvk
from tests.support.keras_training import skip_jit
from tests.support.uneven_data import BATCH, batches_of, data_of
from tests.variants import combined, in_full

pytestmark = pytest.mark.ranks("2")

v1 = tf.compat.v1
OF_DENSE, OF_TABLE, OF_LAST = [1.0, 1.0], [[0.0, 0.0], [2.0, 2.0], [0.0, 0.0], [1.0, 1.0]], 5.0


class Variables:
    """In the order of a model: local ones before, between and after the common ones; rank 0 has the most."""

    def __init__(self, rank: int, size: int, make=tf.Variable):
        self.local = [make(tf.ones([place + 1, rank + 1])) for place in range(size - rank)]
        self.dense, self.table, self.last = make([1.0, 2.0]), make(tf.ones([4, 2])), make(3.0)
        self.all = [self.local[0], self.dense, *self.local[1:2], self.table, *self.local[2:], self.last]

    def loss(self, weight: float) -> tf.Tensor:
        common = tf.reduce_sum(self.dense) + tf.reduce_sum(tf.gather(self.table, [1, 1, 3])) + OF_LAST * self.last
        return weight * (common + tf.add_n([tf.reduce_sum(variable) for variable in self.local]))

    def gradients(self, of_common: float, of_local: float) -> list[tf.Tensor]:
        """Of the loss, weighted."""
        common = {id(self.dense): OF_DENSE, id(self.table): OF_TABLE, id(self.last): OF_LAST}
        return [
            of_common * tf.constant(common[id(each)]) if id(each) in common else tf.fill(each.shape, of_local)
            for each in self.all
        ]

    def expected(self, rank: int, size: int) -> list[tf.Tensor]:
        """What the ranks get together, each with the weight rank + 1."""
        return self.gradients((size + 1) / 2, (rank + 1.0) / size)


def check(got, expected) -> None:
    assert len(got) == len(expected)
    for one, wanted in zip(got, expected):
        np.testing.assert_allclose(tf.convert_to_tensor(one), wanted, rtol=1e-6)


@pytest.mark.parametrize(("how", "sparse_as_dense"), combined(["eager", "function", "compiled"], [False, True]))
def test_tape(hvd, rank, size, how, sparse_as_dense):
    skip_jit(how == "compiled", size)
    variables = Variables(rank, size)

    def step(weight):
        with tf.GradientTape() as tape:
            loss = variables.loss(weight)
        tape = hvd.DistributedGradientTape(tape, sparse_as_dense=sparse_as_dense)
        for variable in variables.local:
            tape.register_local_source(variable)
        return [tf.convert_to_tensor(grad) for grad in tape.gradient(loss, variables.all)]

    run = step if how == "eager" else tf.function(step, jit_compile=how == "compiled")
    for _ in range(2):
        check(run(rank + 1.0), variables.expected(rank, size))


@pytest.mark.parametrize("how", ["eager", "function", "passes", "loss scale"])
def test_keras_optimizer(hvd, rank, size, how):
    variables = Variables(rank, size, keras.Variable)
    before = [variable.numpy() for variable in variables.all]
    passes = 2 if how == "passes" else 1
    optimizer = hvk.DistributedOptimizer(keras.optimizers.SGD(1.0), backward_passes_per_step=passes)
    for variable in variables.local:
        optimizer.register_local_var(variable)
    scale = 8.0 if how == "loss scale" else 1.0
    if how == "loss scale":
        optimizer = keras.optimizers.LossScaleOptimizer(optimizer, initial_scale=scale)
    optimizer.build(variables.all)
    grads = variables.gradients(scale * (rank + 1.0) / passes, scale * (rank + 1.0) / passes)
    # Without the variables, a LossScaleOptimizer of Keras 3.11 updates none.
    step = lambda: optimizer.apply(grads, variables.all)  # noqa: E731
    step = step if how == "eager" else tf.function(step)
    for _ in range(passes):
        step()
    check([old - new.numpy() for old, new in zip(before, variables.all)], variables.expected(rank, size))


@pytest.mark.parametrize("how", ["session", "eager"])
def test_optimizer_of_tensorflow_1(hvd, rank, size, how):
    expected = Variables(rank, size).expected(rank, size)
    with tf.Graph().as_default() if how == "session" else contextlib.nullcontext():
        variables = Variables(rank, size)
        optimizer = hvd.DistributedOptimizer(v1.train.GradientDescentOptimizer(1.0))
        for variable in variables.local:
            optimizer.register_local_var(variable)
        loss = variables.loss(rank + 1.0) if how == "session" else lambda: variables.loss(rank + 1.0)
        pairs = optimizer.compute_gradients(loss, variables.all)
        grads = [tf.convert_to_tensor(grad) for grad, _ in pairs]
        if how == "session":
            with v1.Session() as session:
                session.run(v1.global_variables_initializer())
                grads = session.run(grads)
    check(grads, expected)


def test_layers(hvd, rank, size):
    """A tape and an optimizer that keep a layer, which has a bias on rank 0 only."""
    private, common = keras.layers.Dense(2, use_bias=rank == 0), keras.layers.Dense(1)
    model = keras.Sequential([keras.Input((3,)), private, common])
    common.set_weights([np.ones((2, 1)), np.zeros(1)])
    private.set_weights([np.full(weight.shape, 0.5) for weight in private.get_weights()])
    x = np.full((2, 3), rank + 1.0, np.float32)
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(model(x))
    tape = hvd.PartialDistributedGradientTape(tape, local_layers=[private])
    sources = [variable.value for variable in model.trainable_variables]
    *of_private, of_kernel, of_bias = tape.gradient(loss, sources)
    hidden = 1.5 * (size + 1) / 2 + 0.5 / size  # the mean; 0.5 is rank 0's bias
    np.testing.assert_allclose(of_kernel, np.full((2, 1), hidden), rtol=1e-6)
    np.testing.assert_allclose(of_bias, [1.0], rtol=1e-6)
    np.testing.assert_allclose(of_private[0], np.full((3, 2), (rank + 1.0) / size), rtol=1e-6)
    model.compile(hvk.PartialDistributedOptimizer(keras.optimizers.SGD(0.1), local_layers=private), loss="mse")
    model.fit(x, np.zeros((2, 1)), verbose=0)
    weights = [weight.tolist() for weight in common.get_weights()]
    assert hvd.allgather_object(weights) == [weights] * size


@pytest.mark.parametrize("passes", [2, *in_full(1)])
def test_fit_with_uneven_data(hvd, rank, size, passes):
    """Ranks run out of data at different times; the common layer stays equal everywhere."""
    if size == 1:
        pytest.skip("one rank cannot be uneven")
    keras.utils.set_random_seed(3)
    private, common = [keras.layers.Dense(6) for _ in range(size - rank)], keras.layers.Dense(3)
    model = keras.Sequential([keras.Input((6,)), *private, common])
    common.set_weights([np.ones((6, 3)), np.zeros(3)])
    optimizer = hvk.PartialDistributedOptimizer(
        keras.optimizers.SGD(0.01), local_layers=private, backward_passes_per_step=passes
    )
    model.compile(optimizer, loss="mse")
    before = [weight for layer in private for weight in layer.get_weights()]
    model.fit(*data_of(rank), batch_size=BATCH, epochs=2, shuffle=False, verbose=0)
    weights = [weight.tolist() for weight in common.get_weights()]
    assert hvd.allgather_object(weights) == [weights] * size
    after = [weight for layer in private for weight in layer.get_weights()]
    assert not any(np.allclose(old, new) for old, new in zip(before, after))
    assert int(optimizer.iterations.numpy()) == 2 * len(batches_of(size - 1))


def test_local_variables_of_another_dtype(hvd, rank, size):
    """Gradients of float16 are divided before they are added up: not because of one that stays on rank 0."""
    common, local = keras.Variable([1.0]), keras.Variable([1.0], dtype="float16" if rank == 0 else "float32")
    optimizer = hvk.DistributedOptimizer(keras.optimizers.SGD(1.0))
    optimizer.register_local_var(local)
    tf.function(lambda: optimizer.apply([tf.constant([rank + 1.0]), tf.ones([1], local.dtype)], [common, local]))()
    np.testing.assert_allclose(common, [1.0 - (size + 1) / 2])
