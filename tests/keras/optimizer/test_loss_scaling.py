"""Loss scales over several ranks: one finite test and one scale for all, whoever met the infinity."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

import smddp_tf.keras as hvk
from tests.native_module import core
from tests.support.keras_training import (
    FEATURES,
    ROWS_PER_RANK,
    dense_data,
    dense_model,
    distance,
    flat_weights,
    part_of,
    same_on_all_ranks,
    train_in_loop,
)
from tests.support.overlapping import AfterABucket
from tests.variants import in_full

pytestmark = pytest.mark.ranks("2")

STEPS = 8


def model_of(policy: str) -> keras.Model:
    keras.config.set_dtype_policy(policy)
    try:
        return dense_model()
    finally:
        keras.config.set_dtype_policy("float32")


def sgd() -> keras.optimizers.Optimizer:
    return keras.optimizers.SGD(0.1, momentum=0.9, clipnorm=0.1)


class OwnScale(keras.optimizers.LossScaleOptimizer):
    """One that looks at the gradients by itself, before the library can."""

    def apply(self, grads, trainable_variables=None):
        if not self.built:
            self.build(trainable_variables)
        self._common_apply(grads, trainable_variables)


def nest(kind: str, inner=sgd, **scaling):
    if kind == "added by compile":
        return hvk.DistributedOptimizer(inner())
    if kind == "reduce(scale)":
        return hvk.DistributedOptimizer(keras.optimizers.LossScaleOptimizer(inner(), **scaling))
    if kind == "reduce(own scale)":
        return hvk.DistributedOptimizer(OwnScale(inner(), **scaling))
    kinds = {"scale(reduce)": keras.optimizers.LossScaleOptimizer, "own scale(reduce)": OwnScale}
    return kinds[kind](hvk.DistributedOptimizer(inner()), **scaling)


NESTS = ["reduce(scale)", "scale(reduce)", "reduce(own scale)", "own scale(reduce)"]


def without(step: int, array: np.ndarray, size: int) -> np.ndarray:
    batch = ROWS_PER_RANK * size
    return np.delete(array, np.s_[step * batch : (step + 1) * batch], axis=0)


def fit_with_an_infinity(model, bad_step, rank, bad_rank, size, value=np.inf):
    x, y = dense_data(size, STEPS)
    local_x = part_of(x, rank, size).copy()
    if rank == bad_rank:
        local_x[bad_step * ROWS_PER_RANK + 1, 2] = value
    model.fit(local_x, part_of(y, rank, size), batch_size=ROWS_PER_RANK, shuffle=False, verbose=0)
    return without(bad_step, x, size), without(bad_step, y, size)


@pytest.mark.parametrize(
    ("kind", "bad_step"),
    [(NESTS[0], 0), (NESTS[3], STEPS - 1), *in_full((NESTS[1], 3), (NESTS[2], 5))],
)
def test_the_step_with_an_infinity_is_left_out_everywhere(hvd, rank, size, mpi, kind, bad_step):
    """To 1e-6, because the model computes in float32 and only its gradients are scaled, by powers of two."""
    model = dense_model()
    optimizer = nest(kind)
    model.compile(optimizer, loss="mse")
    rest = fit_with_an_infinity(model, bad_step, rank, bad_step % size, size)
    expected = train_in_loop(dense_model(), sgd(), *rest, ROWS_PER_RANK * size)
    assert distance(flat_weights(model), expected) < 1e-6
    assert same_on_all_ranks(mpi, flat_weights(model))
    assert mpi.allgather(float(optimizer.dynamic_scale.numpy())) == [2.0**14] * size
    assert int(optimizer.inner_optimizer.iterations.numpy()) == STEPS - 1


@pytest.mark.parametrize(
    ("policy", "kind", "bad_step"),
    [("mixed_float16", "added by compile", 2), ("mixed_float16", "reduce(scale)", 4)],
)
def test_mixed_float16(hvd, rank, size, mpi, policy, kind, bad_step):
    model = model_of(policy)
    model.compile(nest(kind), loss="mse")
    assert isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer)
    rest = fit_with_an_infinity(model, bad_step, rank, size - 1, size, np.nan)
    expected = train_in_loop(dense_model(), sgd(), *rest, ROWS_PER_RANK * size)
    assert distance(flat_weights(model), expected) < 5e-3
    assert same_on_all_ranks(mpi, flat_weights(model))
    assert mpi.allgather(float(model.optimizer.dynamic_scale.numpy())) == [2.0**14] * size
    assert {variable.dtype for variable in model.variables} == {"float32"}


def test_mixed_bfloat16(hvd, rank, size, mpi):
    """No loss scale, and gradients in float32 as the variables are."""
    x, y = dense_data(size, STEPS)
    model = model_of("mixed_bfloat16")
    model.compile(hvk.DistributedOptimizer(sgd()), loss="mse")
    assert not isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer)
    model.fit(part_of(x, rank, size), part_of(y, rank, size), batch_size=ROWS_PER_RANK, shuffle=False, verbose=0)
    expected = train_in_loop(dense_model(), sgd(), x, y, ROWS_PER_RANK * size)
    assert 1e-6 < distance(flat_weights(model), expected) < 4e-2
    assert same_on_all_ranks(mpi, flat_weights(model))


def scaled_sgd(kind: str, **scaling):
    optimizer = nest(kind, lambda: keras.optimizers.SGD(1.0), **scaling)
    variable = keras.Variable([0.0, 0.0])
    optimizer.build([variable])
    return optimizer, variable


@pytest.mark.parametrize("kind", NESTS[:2])
def test_an_infinity_made_by_the_sum_is_skipped(hvd, rank, size, kind):
    """Each rank's gradient fits float16, in which they travel, and the sum of them does not."""
    if size == 1:
        pytest.skip("one rank sums nothing")
    inner, scale = keras.optimizers.SGD(1.0), keras.optimizers.LossScaleOptimizer
    fp16 = hvk.Compression.fp16
    if kind == "reduce(scale)":
        optimizer = hvk.DistributedOptimizer(scale(inner), compression=fp16)
    else:
        optimizer = scale(hvk.DistributedOptimizer(inner, compression=fp16))
    variable = keras.Variable([0.0, 0.0])
    optimizer.build([variable])
    optimizer.apply([tf.constant([1.0, 40000.0])], [variable])
    np.testing.assert_array_equal(variable, [0.0, 0.0])
    assert float(optimizer.dynamic_scale.numpy()) == 2.0**14
    optimizer.apply([tf.constant([2.0**12, 0.0])], [variable])
    np.testing.assert_allclose(variable, [-0.25, 0.0])


def test_float16_gradients_are_divided_before_they_are_summed(hvd, rank, size):
    variable = keras.Variable(np.zeros(2), dtype="float16")
    optimizer = hvk.DistributedOptimizer(keras.optimizers.SGD(1.0))
    step = tf.function(lambda grad: optimizer.apply([grad], [variable]))
    step(tf.constant([40000.0, rank], tf.float16))
    np.testing.assert_allclose(variable.numpy().astype(np.float64), [-40000.0, -(size - 1) / 2], rtol=1e-3)


@pytest.mark.parametrize("kind", NESTS[1:3])
def test_the_scale_grows_together(hvd, rank, size, mpi, kind):
    optimizer, variable = scaled_sgd(kind, initial_scale=4.0, dynamic_growth_steps=2)
    for number in range(7):
        bad = number == 3 and rank == size - 1
        optimizer.apply([tf.fill([2], np.nan if bad else optimizer.dynamic_scale * (rank + 1.0))], [variable])
    assert mpi.allgather(float(optimizer.dynamic_scale.numpy())) == [8.0] * size
    np.testing.assert_allclose(variable, np.full(2, -6 * (size + 1) / 2))


def test_an_infinity_in_a_float8_scale_of_one_rank_skips_the_step_on_all(hvd, rank, size):
    """Such scales stay on their rank, so their infinity has to be told."""
    weight, scale = keras.Variable([0.0, 0.0]), keras.Variable([1.0])
    scale.overwrite_with_gradient = True
    optimizer = keras.optimizers.LossScaleOptimizer(hvk.DistributedOptimizer(keras.optimizers.SGD(1.0)))
    optimizer.build([weight, scale])

    @tf.function
    def step(of_scale):
        optimizer.apply([tf.fill([2], 2.0**15), of_scale], [weight, scale])

    step(tf.constant([np.inf if rank == 0 else 2.0]))
    np.testing.assert_array_equal(weight, [0.0, 0.0])
    np.testing.assert_array_equal(scale, [1.0])
    assert float(optimizer.dynamic_scale.numpy()) == 2.0**14
    step(tf.constant([2.0]))
    np.testing.assert_allclose(weight, [-2.0, -2.0])


@pytest.mark.parametrize("kind", [*NESTS[:2], *in_full("accumulation of Keras", "passes")])
def test_reduction_still_runs_beside_the_backward_pass(hvd, rank, size, kind):
    """A bucket is through before a late gradient is ready; also in the branch that ends several passes."""
    if size == 1:
        pytest.skip("one rank reduces nothing, so nothing can overlap")
    late, early = keras.Variable(np.zeros(8), dtype="float64"), keras.Variable(np.zeros(1 << 16), dtype="float32")
    if kind == "passes":
        optimizer = hvk.DistributedOptimizer(keras.optimizers.SGD(1.0), backward_passes_per_step=2)
    elif kind.startswith("acc"):
        optimizer = hvk.DistributedOptimizer(keras.optimizers.SGD(1.0, gradient_accumulation_steps=2))
    else:
        optimizer = nest(kind, lambda: keras.optimizers.SGD(1.0))
    optimizer.build([late, early])
    after_a_bucket = AfterABucket()

    @tf.function
    def step():
        slow = tf.numpy_function(after_a_bucket, [tf.fill([8], tf.cast(rank, tf.float64))], tf.float64)
        optimizer.apply([tf.ensure_shape(slow, [8]), tf.ones(1 << 16)], [late, early])

    passes = 1 if kind in NESTS else 2
    for number in range(4):
        if number == 2:
            core().trace_start()
        if (number + 1) % passes == 0:
            after_a_bucket.begin()
        step()
    events = {(event["what"], event["index"]): event["time_ns"] for event in core().trace_stop()}
    # Two dtypes, two buckets; the one that came first in the first step is number 0.
    assert events["bucket_done", 0] < events["tensor_ready", 0] < events["bucket_done", 1]
    assert np.ptp(early.numpy()) == 0.0 != early.numpy()[0]


def test_the_class_of_keras_is_itself_where_nothing_is_ours(hvd, rank, size):
    """Another optimizer's infinity is no business of the other ranks."""
    hvk.DistributedOptimizer(sgd())
    optimizer = OwnScale(keras.optimizers.SGD(1.0), initial_scale=1.0)
    variable = keras.Variable(np.zeros(FEATURES))
    optimizer.apply([tf.fill([FEATURES], np.inf if rank == 0 else 1.0)], [variable])
    np.testing.assert_allclose(variable, np.full(FEATURES, 0.0 if rank == 0 else -1.0))
