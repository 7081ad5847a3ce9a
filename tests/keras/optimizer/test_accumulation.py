"""Several passes for one update: one reduction for each update, and the weights of one process on all the passes' rows.

The oracle is plain SGD on whole windows: the mean over passes and ranks of the gradients of means is the gradient of
the window's mean, and clipping comes after it.
"""

from __future__ import annotations

import functools
import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf

import smddp_tf.keras as hvk
from smddp_tf.keras.roles.optimizers import iterations_of
from tests.native_module import core
from tests.support.keras_training import (
    ROWS_PER_RANK,
    dense_data,
    dense_model,
    distance,
    embedding_model,
    flat_weights,
    part_of,
    skip_jit,
    train_in_loop,
    word_data,
)
from tests.variants import in_full

pytestmark = pytest.mark.ranks("2")

PASSES = 3
WINDOWS = 8
CLIPS = {
    "plain": {},
    "clipnorm": {"clipnorm": 0.02},
    "global_clipnorm": {"global_clipnorm": 0.05},
    "clipvalue": {"clipvalue": 0.01},
}


def sgd(rate: float = 0.1, **more) -> keras.optimizers.Optimizer:
    return keras.optimizers.SGD(rate, momentum=0.9, **more)


@functools.cache
def on_whole_windows(clip: str, size: int, rate: float = 0.1, words: bool = False) -> np.ndarray:
    """The weights after one process has trained on the windows of all ranks, as one batch each."""
    data = word_data if words else dense_data
    x, y = data(size, WINDOWS * PASSES)
    model = embedding_model() if words else dense_model()
    return train_in_loop(model, sgd(rate, **CLIPS[clip]), x, y, PASSES * ROWS_PER_RANK * size)


def reductions_of(events: list[dict]) -> int:
    """How often gradients were reduced: a small model's are one bucket, in eager mode one named request."""
    return sum(e["what"] in ("bucket_start", "op_start") and e["name"].startswith("optimizer") for e in events)


def train(how: str, model, optimizer, x, y) -> np.ndarray:
    if how == "loop":
        return train_in_loop(model, optimizer, x, y, ROWS_PER_RANK)
    options = {"run_eagerly": how == "run_eagerly", "jit_compile": how == "jit"}
    steps = 4 if how == "steps_per_execution" else 1
    model.compile(optimizer, loss="mse", steps_per_execution=steps, **options)
    model.fit(x, y, batch_size=ROWS_PER_RANK, shuffle=False, verbose=0)
    return flat_weights(model)


def check_training(optimizer, expected, how, rank, size, mpi) -> None:
    skip_jit(how == "jit", size)
    x, y = dense_data(size, WINDOWS * PASSES)
    core().trace_start()
    weights = train(how, dense_model(), optimizer, part_of(x, rank, size), part_of(y, rank, size))
    assert reductions_of(core().trace_stop()) == (WINDOWS if size > 1 else 0)
    assert distance(weights, expected) < 1e-6
    assert all(np.array_equal(weights, theirs) for theirs in mpi.allgather(weights))


@pytest.mark.parametrize(
    ("how", "clip"),
    [
        ("fit", "clipnorm"),
        ("run_eagerly", "clipvalue"),
        ("loop", "global_clipnorm"),
        ("jit", "clipnorm"),
        *in_full(("steps_per_execution", "plain")),
    ],
)
def test_accumulation_of_keras(hvd, rank, size, mpi, how, clip):
    optimizer = hvk.DistributedOptimizer(sgd(gradient_accumulation_steps=PASSES, **CLIPS[clip]))
    check_training(optimizer, on_whole_windows(clip, size), how, rank, size, mpi)


@pytest.mark.parametrize(("how", "clip"), [("fit", "global_clipnorm"), ("run_eagerly", "plain"), ("loop", "clipnorm")])
def test_passes_averaged(hvd, rank, size, mpi, how, clip):
    optimizer = hvk.DistributedOptimizer(
        sgd(**CLIPS[clip]), backward_passes_per_step=PASSES, average_aggregated_gradients=True
    )
    check_training(optimizer, on_whole_windows(clip, size), how, rank, size, mpi)
    assert int(optimizer.iterations.numpy()) == WINDOWS * PASSES


def test_passes_summed(hvd, rank, size, mpi):
    """The default: a sum of three passes at a third of the rate. Horovod's two spellings are one."""
    optimizer = hvd.DistributedOptimizer(sgd(0.1 / PASSES), backward_passes_per_step=PASSES)
    check_training(optimizer, on_whole_windows("plain", size), "fit", rank, size, mpi)


def nest(kind: str, rate: float = 0.1) -> keras.optimizers.LossScaleOptimizer:
    """A loss scale and a reduction put around each other, with the accumulation of Keras or of Horovod."""
    keras_steps = PASSES if kind.endswith("keras") else None
    inner = sgd(rate, gradient_accumulation_steps=keras_steps, **CLIPS["clipnorm"])
    ours = {} if keras_steps else {"backward_passes_per_step": PASSES, "average_aggregated_gradients": True}
    if kind.startswith("reduce"):
        return hvk.DistributedOptimizer(keras.optimizers.LossScaleOptimizer(inner), **ours)
    return keras.optimizers.LossScaleOptimizer(hvk.DistributedOptimizer(inner, **ours))


KINDS = ["reduce(scale), keras", "scale(reduce), keras", "reduce(scale), passes", "scale(reduce), passes"]


@pytest.mark.parametrize(
    ("kind", "jit"),
    [
        *((KINDS[0], False), (KINDS[2], True)),
        *in_full((KINDS[3], False), (KINDS[1], False), (KINDS[2], False), (KINDS[1], True)),
    ],
)
def test_with_a_loss_scale(hvd, rank, size, mpi, kind, jit):
    """An infinity in one pass of one rank drops the window it is in, on all ranks, and nothing else."""
    skip_jit(jit, size)
    optimizer = nest(kind)
    x, y = dense_data(size, WINDOWS * PASSES)
    local_x, local_y = part_of(x, rank, size).copy(), part_of(y, rank, size)
    dropped = 4
    if rank == size - 1:
        local_x[(dropped * PASSES + 1) * ROWS_PER_RANK] = np.inf  # in the second pass of the window
    core().trace_start()
    model = dense_model()
    model.compile(optimizer, loss="mse", jit_compile=jit)
    model.fit(local_x, local_y, batch_size=ROWS_PER_RANK, shuffle=False, verbose=0)
    assert reductions_of(core().trace_stop()) == (WINDOWS if size > 1 else 0)

    whole_window = PASSES * ROWS_PER_RANK * size
    rows = np.r_[: dropped * whole_window, (dropped + 1) * whole_window : len(x)]
    expected = train_in_loop(dense_model(), sgd(**CLIPS["clipnorm"]), x[rows], y[rows], whole_window)
    assert distance(flat_weights(model), expected) < 1e-6
    assert all(np.array_equal(flat_weights(model), theirs) for theirs in mpi.allgather(flat_weights(model)))
    assert float(optimizer.dynamic_scale.numpy()) == 2.0**14
    lost = PASSES if kind.endswith("keras") else 1  # Keras's counter says where in a window it is
    assert int(iterations_of(optimizer.inner_optimizer).numpy()) == WINDOWS * PASSES - lost


@pytest.mark.parametrize("kind", KINDS[:1] + KINDS[3:])
def test_with_a_loss_scale_in_eager_mode(hvd, rank, size, kind):
    variable = keras.Variable([1.0])
    optimizer = nest(kind, 1.0)
    optimizer.build([variable])
    for number in range(PASSES * 2):
        bad = number == 1 and rank == 0
        optimizer.apply([tf.constant([np.nan if bad else 2.0**10])], [variable])
        assert bool(variable.numpy()[0] == 1.0) == (number < 2 * PASSES - 1)
    np.testing.assert_allclose(variable, [1.0 - CLIPS["clipnorm"]["clipnorm"]], rtol=1e-6)
    assert float(optimizer.dynamic_scale.numpy()) == 2.0**14


def test_adam_counts_every_pass(hvd, rank, size):
    """As with Horovod: `iterations` grows in every call, and Adam corrects its bias by it."""
    ours, expected = keras.Variable([1.0, 2.0]), keras.Variable([1.0, 2.0])
    plain = keras.optimizers.Adam(0.1)
    plain.build([expected])
    optimizer = hvk.DistributedOptimizer(keras.optimizers.Adam(0.1), backward_passes_per_step=2)
    for number in range(4):
        grads = [np.array([[1.0, -3.0], [0.5, 2.0]], np.float32) * (number + 1 + each) for each in range(size)]
        for row in range(2):
            optimizer.apply([tf.constant(grads[rank][row])], [ours])
        plain.iterations.assign_add(1)
        plain.apply([tf.constant(np.mean(grads, axis=0).sum(axis=0))], [expected])
    np.testing.assert_allclose(ours, expected, rtol=1e-6)


@pytest.mark.parametrize("how", ["keras", "passes"])
def test_embedding(hvd, rank, size, how):
    x, y = word_data(size, WINDOWS * PASSES)
    if how == "keras":
        optimizer = hvk.DistributedOptimizer(sgd(gradient_accumulation_steps=PASSES))
    else:
        optimizer = hvk.DistributedOptimizer(
            sgd(), sparse_as_dense=True, backward_passes_per_step=PASSES, average_aggregated_gradients=True
        )
    weights = train_in_loop(embedding_model(), optimizer, part_of(x, rank, size), part_of(y, rank, size), ROWS_PER_RANK)
    assert distance(weights, on_whole_windows("plain", size, words=True)) < 1e-6


def test_slices_must_be_made_dense(hvd):
    table = keras.Variable(np.zeros((4, 2)), name="table")
    optimizer = hvk.DistributedOptimizer(sgd(), backward_passes_per_step=2)
    with pytest.raises(
        ValueError, match=r"must be dense(.|\n)*IndexedSlices for variable 'table'.*sparse_as_dense=True"
    ):
        optimizer.apply([tf.IndexedSlices(tf.ones((1, 2)), tf.constant([1]), (4, 2))], [table])


def test_16_bit_gradients_are_summed_in_float32(hvd, rank, size):
    """2048 + 1 is 2048 in float16, so a sum of ones would stop there."""
    variable = keras.Variable(np.zeros(1), dtype="float16")
    optimizer = hvk.DistributedOptimizer(keras.optimizers.SGD(1.0), backward_passes_per_step=4)
    for value in (2048, 1, 1, 2):
        optimizer.apply([tf.constant([value], tf.float16)], [variable])
    np.testing.assert_array_equal(variable, [-2052])


def test_variables_left_alone(hvd, rank, size):
    """No gradient: nothing happens. A float8 scale: the largest of the passes, of this rank."""
    weight, unused, scale = keras.Variable([0.0]), keras.Variable([5.0]), keras.Variable([1.0])
    scale.overwrite_with_gradient = True
    optimizer = hvk.DistributedOptimizer(keras.optimizers.SGD(1.0), backward_passes_per_step=2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        for value in (7.0, 3.0):
            optimizer.apply([tf.constant([value + rank]), None, tf.constant([value + rank])], [weight, unused, scale])
    np.testing.assert_allclose(weight, [-10 - (size - 1)])
    np.testing.assert_allclose(unused, [5.0])
    np.testing.assert_allclose(scale, [7.0 + rank])


@pytest.mark.parametrize("way", ["passes", "loss scale"])
def test_in_one_graph(hvd, rank, size, way):
    """Gradients that the branch of the update takes as they are (local, a float8 scale) beside others."""
    dtypes = "float32", "float16" if way == "passes" else "float32"  # Keras's own sums are not of 16 bits
    wide, narrow, local, scale = (keras.Variable([5.0, 5.0], dtype=each) for each in (*dtypes, *["float32"] * 2))
    scale.overwrite_with_gradient = True
    variables, factor = [wide, narrow, local, scale], 1.0
    if way == "passes":
        plain, arguments = keras.optimizers.SGD(1.0), {"backward_passes_per_step": 2}
    else:
        plain, arguments = keras.optimizers.SGD(1.0, gradient_accumulation_steps=2), {}
        plain, factor = keras.optimizers.LossScaleOptimizer(plain, initial_scale=8.0), 8.0
    optimizer = hvk.DistributedOptimizer(plain, scale_local_gradients=False, **arguments)
    optimizer.register_local_var(local)
    optimizer.build(variables)
    grads = [tf.constant([factor * (rank + 1), 0.0], each.dtype) for each in variables[:3]]

    @tf.function
    def step():
        optimizer.apply([*grads, tf.constant([3.0 + rank, 1.0])], variables)

    for _ in range(2):
        step()
    passes = 2 if way == "passes" else 1  # Keras takes the mean
    np.testing.assert_allclose(wide, [5 - passes * (size + 1) / 2, 5])
    np.testing.assert_allclose(narrow, [5 - passes * (size + 1) / 2, 5])
    np.testing.assert_allclose(local, [5 - passes * (rank + 1), 5])
    np.testing.assert_allclose(scale, [3.0 + rank, 1.0])


def test_sums_are_in_no_file(hvd, rank, size, mpi, tmp_path):
    model = dense_model()
    optimizer = hvk.DistributedOptimizer(sgd(), backward_passes_per_step=2)
    model.compile(optimizer, loss="mse")
    x, y = dense_data(size, 3)
    model.fit(part_of(x, rank, size), part_of(y, rank, size), batch_size=ROWS_PER_RANK, verbose=0)
    plain = sgd()
    plain.build(model.trainable_variables)
    assert len(optimizer.variables) == len(plain.variables)
    assert set(optimizer.get_config()) == set(plain.get_config())
    if rank == 0:
        path = tmp_path / "model.keras"
        model.save(path)
        assert len(keras.models.load_model(path).optimizer.variables) == len(plain.variables)


@pytest.mark.parametrize("wrong", [0, -2, 1.5, True, "2", None])
def test_wrong_numbers_of_passes(hvd, wrong):
    with pytest.raises(ValueError, match=r"must be an integer of at least 1\. Received: backward_passes_per_step="):
        hvk.DistributedOptimizer(sgd(), backward_passes_per_step=wrong)


def test_both_kinds_of_accumulation_are_refused(hvd):
    for make in (lambda o: o, keras.optimizers.LossScaleOptimizer):
        optimizer = make(sgd(gradient_accumulation_steps=4))
        with pytest.raises(ValueError, match="not by both.*gradient_accumulation_steps=4 and .*per_step=2"):
            hvk.DistributedOptimizer(optimizer, backward_passes_per_step=2)
