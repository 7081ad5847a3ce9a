"""DistributedOptimizer against one process that trains on the whole batch."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

import smddp_tf.keras as hvk
from smddp_tf.gradients.options import ReduceOptions
from smddp_tf.keras.roles.wrapping import reducer_of
from tests.support.keras_training import (
    OPTIMIZERS,
    ROWS_PER_RANK,
    dense_data,
    dense_model,
    distance,
    embedding_model,
    flat_weights,
    one_process,
    part_of,
    same_on_all_ranks,
    train_in_loop,
    word_data,
)
from tests.variants import combined, in_full

pytestmark = pytest.mark.ranks("1", "2")


# The others go through the same step; each is in a loop below. adam_ema: test_ema_in_fit; sgd_accumulation:
# test_accumulation.py
IN_FIT = ("adamw_clipnorm", "sgd_global_clipnorm")


@pytest.mark.parametrize("name", [*IN_FIT, *in_full(*sorted(OPTIMIZERS.keys() - {"adam_ema", *IN_FIT}))])
def test_fit_equals_one_process_on_the_whole_batch(hvd, rank, size, mpi, name):
    x, y = dense_data(size)
    model = dense_model()
    model.compile(hvk.DistributedOptimizer(OPTIMIZERS[name]()), loss="mse")
    local_x, local_y = part_of(x, rank, size), part_of(y, rank, size)
    model.fit(local_x, local_y, batch_size=ROWS_PER_RANK, shuffle=False, verbose=0)
    assert distance(flat_weights(model), one_process(name, size)) < 1e-6
    assert same_on_all_ranks(mpi, flat_weights(model))


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_loop_equals_one_process_on_the_whole_batch(hvd, rank, size, mpi, name):
    x, y = dense_data(size)
    model = dense_model()
    optimizer = hvk.DistributedOptimizer(OPTIMIZERS[name]())
    weights = train_in_loop(model, optimizer, part_of(x, rank, size), part_of(y, rank, size), ROWS_PER_RANK)
    assert distance(weights, one_process(name, size)) < 1e-6
    assert same_on_all_ranks(mpi, weights)


def test_ema_in_fit(hvd, rank, size):
    """`fit` ends by writing the average over the weights, a loop does not, so this needs an oracle of its own."""
    x, y = dense_data(size)
    expected, model = dense_model(), dense_model()
    expected.compile(OPTIMIZERS["adam_ema"](), loss="mse")
    expected.fit(x, y, batch_size=ROWS_PER_RANK * size, shuffle=False, verbose=0)
    model.compile(hvk.DistributedOptimizer(OPTIMIZERS["adam_ema"]()), loss="mse")
    local_x, local_y = part_of(x, rank, size), part_of(y, rank, size)
    model.fit(local_x, local_y, batch_size=ROWS_PER_RANK, shuffle=False, verbose=0)
    assert distance(flat_weights(model), flat_weights(expected)) < 1e-6


@pytest.mark.parametrize(
    ("name", "sparse_as_dense"), combined(["sgd_momentum", "adam", "sgd_global_clipnorm"], [False, True])
)
def test_embedding(hvd, rank, size, mpi, name, sparse_as_dense):
    """Repeated words are added up either way, as one process does with dense gradients."""
    x, y = word_data(size)
    model = embedding_model()
    optimizer = hvk.DistributedOptimizer(OPTIMIZERS[name](), sparse_as_dense=sparse_as_dense)
    weights = train_in_loop(model, optimizer, part_of(x, rank, size), part_of(y, rank, size), ROWS_PER_RANK)
    assert distance(weights, one_process(name, size, words=True, densify=True)) < 1e-6
    assert same_on_all_ranks(mpi, weights)


@pytest.mark.parametrize(("compression", "tolerance"), [("fp16", 2e-3), ("bf16", 1e-2)])
def test_compression(hvd, rank, size, mpi, compression, tolerance):
    x, y = dense_data(size)
    model = dense_model()
    chosen = getattr(hvk.Compression, compression)
    optimizer = hvk.DistributedOptimizer(OPTIMIZERS["sgd_momentum"](), compression=chosen)
    weights = train_in_loop(model, optimizer, part_of(x, rank, size), part_of(y, rank, size), ROWS_PER_RANK)
    off = distance(weights, one_process("sgd_momentum", size))
    assert off < tolerance
    assert size == 1 or off > 1e-6, "nothing was compressed"
    assert same_on_all_ranks(mpi, weights)


def gradient_seen_by(optimizer, value) -> np.ndarray:
    """What a rank's gradient has become when SGD with rate 1 applies it."""
    variable = keras.Variable(np.zeros(np.shape(value), np.float32))
    optimizer.apply([tf.constant(value, tf.float32)], [variable])
    return -variable.numpy()


def test_sum_adds_and_predivide_averages(hvd, rank, size):
    ranks = np.arange(size)
    total = hvk.DistributedOptimizer(keras.optimizers.SGD(1.0), op=hvk.Sum)
    np.testing.assert_allclose(gradient_seen_by(total, [rank + 1.0, -rank]), [ranks.sum() + size, -ranks.sum()])
    split = hvk.DistributedOptimizer(keras.optimizers.SGD(1.0), gradient_predivide_factor=2.0)
    np.testing.assert_allclose(gradient_seen_by(split, [rank + 1.0]), [ranks.mean() + 1], rtol=1e-6)


def test_eager_apply_without_variables(hvd, rank, size):
    model = dense_model()
    before = model.get_weights()
    optimizer = hvk.DistributedOptimizer(keras.optimizers.SGD(1.0))
    optimizer.build(model.trainable_variables)
    optimizer.apply([tf.fill(v.shape, float(rank)) for v in model.trainable_variables])
    for old, new in zip(before, model.get_weights()):
        np.testing.assert_allclose(old - new, np.full(old.shape, (size - 1) / 2), atol=1e-6)


def test_what_keras_refuses_is_refused_with_its_words(hvd):
    optimizer = hvk.DistributedOptimizer(keras.optimizers.SGD(1.0))
    with pytest.raises(ValueError, match="must already be built"):
        optimizer.apply([tf.zeros(2)])


def test_a_variable_without_gradient_is_left_alone(hvd, rank, size):
    used, unused = keras.Variable([0.0]), keras.Variable([5.0])
    optimizer = hvk.DistributedOptimizer(keras.optimizers.SGD(1.0))
    with pytest.warns(UserWarning, match="Gradients do not exist"):
        optimizer.apply_gradients([(None, unused), (tf.constant([float(rank)]), used)])
    np.testing.assert_allclose(used, [-(size - 1) / 2])
    np.testing.assert_allclose(unused, [5.0])


def test_scales_of_float8_layers_stay_local(hvd, rank, size):
    weight, scale = keras.Variable([0.0]), keras.Variable([1.0])
    scale.overwrite_with_gradient = True
    optimizer = hvk.DistributedOptimizer(keras.optimizers.SGD(1.0))
    optimizer.apply([tf.constant([float(rank)]), tf.constant([float(rank)])], [weight, scale])
    np.testing.assert_allclose(weight, [-(size - 1) / 2])
    np.testing.assert_allclose(scale, [rank])


def test_two_optimizers_in_one_step(hvd, rank, size):
    """A GAN's step: two plans in one graph."""
    first, second = keras.Variable([0.0]), keras.Variable([0.0, 0.0])
    optimizers = [hvk.DistributedOptimizer(keras.optimizers.SGD(1.0)) for _ in range(2)]

    @tf.function
    def step(value):
        optimizers[0].apply([value[:1]], [first])
        optimizers[1].apply([2 * value], [second])

    for _ in range(3):
        step(tf.constant([float(rank), 1.0]))
    mean = (size - 1) / 2
    np.testing.assert_allclose(first, [-3 * mean], rtol=1e-6)
    np.testing.assert_allclose(second, [-6 * mean, -6], rtol=1e-6)


def nest(kind: str) -> keras.optimizers.LossScaleOptimizer:
    """The two ways a loss scale and a reduction can be put around each other."""
    if kind == "reduce(scale(sgd))":
        return hvk.DistributedOptimizer(keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(1.0)))
    return keras.optimizers.LossScaleOptimizer(hvk.DistributedOptimizer(keras.optimizers.SGD(1.0)))


@pytest.mark.parametrize(("in_graph", "kind"), combined([False, True], ["reduce(scale(sgd))", "scale(reduce(sgd))"]))
def test_an_infinity_on_one_rank_skips_the_step_on_all(hvd, rank, size, kind, in_graph):
    variable = keras.Variable([0.0])
    optimizer = nest(kind)

    def apply(gradient):
        optimizer.apply([gradient * optimizer.scale_loss(tf.constant(1.0))], [variable])

    step = tf.function(apply) if in_graph else apply
    optimizer.build([variable])
    scale = float(optimizer.dynamic_scale.numpy())
    step(tf.constant([float(rank)]))
    np.testing.assert_allclose(variable, [-(size - 1) / 2])
    step(tf.constant([np.inf if rank == size - 1 else 1.0]))
    np.testing.assert_allclose(variable, [-(size - 1) / 2])
    assert float(optimizer.dynamic_scale.numpy()) == scale / 2
    step(tf.constant([float(rank)]))
    np.testing.assert_allclose(variable, [-(size - 1)])
    assert int(optimizer.inner_optimizer.iterations.numpy()) == 2


def test_mixed_float16_where_compile_adds_the_loss_scale(hvd, rank, size, mpi):
    x, y = dense_data(size, steps=4)
    keras.config.set_dtype_policy("mixed_float16")
    try:
        model = dense_model()
    finally:
        keras.config.set_dtype_policy("float32")
    model.compile(hvk.DistributedOptimizer(keras.optimizers.SGD(0.1)), loss="mse")
    assert isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer)
    local_x = part_of(x, rank, size).copy()
    if rank == size - 1:
        local_x[ROWS_PER_RANK] = np.inf  # in the second batch
    model.fit(local_x, part_of(y, rank, size), batch_size=ROWS_PER_RANK, shuffle=False, verbose=0)
    assert int(model.optimizer.inner_optimizer.iterations.numpy()) == 3
    assert np.isfinite(flat_weights(model)).all()
    assert same_on_all_ranks(mpi, flat_weights(model))
    assert same_on_all_ranks(mpi, model.optimizer.dynamic_scale.numpy())


def test_a_plain_loss_scale_optimizer_does_not_reduce(hvd, rank):
    hvk.DistributedOptimizer(keras.optimizers.SGD(1.0))  # puts our `apply` into the class
    variable = keras.Variable([0.0])
    keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(1.0), initial_scale=1.0).apply(
        [tf.constant([float(rank)])], [variable]
    )
    np.testing.assert_allclose(variable, [-float(rank)])


class NotAnOptimizer:
    pass


@pytest.mark.parametrize(
    ("wrong", "advice"),
    [
        ("adam", r"keras\.optimizers\.get\('adam'\)"),
        (keras.optimizers.SGD, r"Pass an instance: `hvd\.DistributedOptimizer\(SGD"),
        (tf.compat.v1.train.GradientDescentOptimizer(0.1), "TensorFlow 1 optimizers are wrapped by"),
        (type("SGD", (), {"__module__": "tf_keras.src.optimizers.sgd"})(), "Keras 2 optimizer: set TF_USE_LEGACY"),
        (NotAnOptimizer(), r"keras\.optimizers\.Adam\(\)"),
        (None, r"keras\.optimizers\.Adam\(\)"),
    ],
)
def test_what_is_no_keras_3_optimizer_is_refused(wrong, advice):
    with pytest.raises(ValueError, match=rf"must be a Keras 3 optimizer(.|\n)*Received: optimizer=(.|\n)*{advice}"):
        hvk.DistributedOptimizer(wrong)


def test_wrapping_twice_is_refused():
    optimizer = hvk.DistributedOptimizer(keras.optimizers.SGD())
    for twice in (optimizer, keras.optimizers.LossScaleOptimizer(optimizer)):
        with pytest.raises(ValueError, match="already reduces its gradients(.|\n)*Use it as it is"):
            hvk.DistributedOptimizer(twice)


def test_wrong_arguments_are_refused_and_leave_the_optimizer_plain(hvd):
    plain = keras.optimizers.SGD()
    with pytest.raises(ValueError, match=r"`op`.*hvd\.Average, hvd\.Sum"):
        hvk.DistributedOptimizer(plain, op=hvd.Max)
    with pytest.raises(ValueError, match="gradient_predivide_factor.*needs op=hvd.Average"):
        hvk.DistributedOptimizer(plain, op=hvd.Sum, gradient_predivide_factor=2.0)
    assert type(plain) is keras.optimizers.SGD


def test_the_order_of_arguments_is_that_of_horovod(hvd):
    fp16 = hvk.Compression.fp16
    everybody = hvd.global_process_set
    expected = ReduceOptions("mine", "/gpu:0", "/cpu:0", fp16, True, 1.0, hvk.Sum, 2, True, everybody, False)
    of_keras = hvk.DistributedOptimizer(
        keras.optimizers.SGD(), "mine", "/gpu:0", "/cpu:0", fp16, True, 1.0, hvk.Sum, 2, True, 0, None, everybody, False
    )
    assert reducer_of(of_keras).settings == expected
    of_tf = hvd.DistributedOptimizer(
        keras.optimizers.SGD(),
        "mine",
        False,
        "/gpu:0",
        "/cpu:0",
        fp16,
        True,
        2,
        hvd.Sum,
        1.0,
        True,
        0,
        3,
        everybody,
        False,
    )
    assert reducer_of(of_tf).settings == expected
