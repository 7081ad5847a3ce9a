"""SyncBatchNormalization: the oracle is Keras's BatchNormalization in one process on the batches of all ranks."""

from __future__ import annotations

import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

import smddp_tf.keras as hvk
from smddp_tf.keras.roles import active_ranks, running
from tests.native_module import core
from tests.support.distributed_keras import distributed
from tests.support.early_variables import with_variables
from tests.support.keras_training import distance, flat_weights
from tests.variants import combined, in_full

pytestmark = pytest.mark.ranks("2")

plain = keras.layers.BatchNormalization
synced = hvk.SyncBatchNormalization

ROWS = 4


def values(size: int, shape: tuple[int, ...], rows: int = ROWS, offset: float = 3.0) -> np.ndarray:
    """The batches of all ranks, one after the other; other means and deviations on every rank and channel."""
    random = np.random.default_rng(5)
    of_ranks = [random.normal(offset + rank, 1.0 + rank, (rows, *shape)) for rank in range(size)]
    return np.concatenate(of_ranks).astype(np.float32)


def mine(whole: np.ndarray, rank: int, size: int) -> np.ndarray:
    return np.split(whole, size)[rank]


def forward_and_backward(layer, x: np.ndarray, weights: np.ndarray, mask=None, graph=True, dtype="float32"):
    """Output, gradients of inputs, gamma and beta, and moving statistics, of a loss that weights every value."""
    inputs = tf.constant(x, dtype)

    def step():
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            outputs = layer(inputs, training=True, mask=mask)
            loss = tf.reduce_sum(tf.cast(weights, outputs.dtype) * tf.square(outputs + 0.3))
        return outputs, tape.gradient(loss, [inputs, layer.gamma, layer.beta])

    layer.build(inputs.shape)
    outputs, (of_inputs, of_gamma, of_beta) = (tf.function(step) if graph else step)()
    results = (outputs, of_inputs, of_gamma, of_beta, layer.moving_mean, layer.moving_variance)
    return [result.numpy() for result in results]


def check_against_one_process(hvd, rank, split, x, mask=None, tolerance=1e-5, graph=True, **arguments):
    """`split`: where the whole batch is cut into ranks, as for np.split."""
    weights = np.random.default_rng(6).normal(size=x.shape)
    cut = lambda array: None if array is None else np.split(array, split)[rank]  # noqa: E731
    expected = forward_and_backward(plain(**arguments), x, weights, mask, graph)
    got = forward_and_backward(synced(**arguments), cut(x), cut(weights), cut(mask), graph)
    for of_values, whole in zip(got[:2], expected[:2]):
        assert np.linalg.norm(of_values - cut(whole)) <= tolerance * np.linalg.norm(whole)
    for of_parameter, whole in zip(got[2:4], expected[2:4]):  # each rank's own part of a sum
        total = hvd.allreduce(tf.constant(of_parameter, tf.float64), op=hvd.Sum, name="of_parameter").numpy()
        assert distance(total, whole) < tolerance
    for moving, whole in zip(got[4:], expected[4:]):
        assert distance(moving, whole) < tolerance


INPUTS = {
    "dense": ((5,), {}),
    "images": ((3, 4, 2), {"momentum": 0.7, "epsilon": 0.1}),
    "channels first": ((3, 4, 5), {"axis": 1}),
}


@pytest.mark.parametrize(("kind", "graph"), combined(list(INPUTS), [False, True]))
def test_forward_and_backward(hvd, rank, size, kind, graph):
    shape, arguments = INPUTS[kind]
    check_against_one_process(hvd, rank, size, values(size, shape), graph=graph, **arguments)


def test_ranks_count_by_their_batch_size(hvd, rank, size):
    """Rank 1 has nothing at all; the others have 1, 3, 4, ... rows."""
    rows = [0 if r == 1 else r + 1 for r in range(size)]
    x = values(size, (3, 2))[: sum(rows)]
    check_against_one_process(hvd, rank, np.cumsum(rows)[:-1], x)


def test_masked_values_do_not_count(hvd, rank, size):
    """The masks differ in their number of values, and the masked values are large."""
    x = values(size, (6, 3))
    mask = np.random.default_rng(8).random((len(x), 6)) < np.linspace(0.2, 0.9, len(x))[:, np.newaxis]
    x[~mask] = 1e6
    check_against_one_process(hvd, rank, size, x, mask)


def test_a_large_mean_does_not_eat_the_variance(hvd, rank, size):
    """float32 sums of squares would lose all digits of a variance of 1 beside a mean of 1e4."""
    if size == 1:
        pytest.skip("one rank leaves the statistics to Keras")
    x = np.random.default_rng(5).normal(1e4, 1.0, (ROWS * size, 50)).astype(np.float32)
    layer = synced(momentum=0.0)
    layer(mine(x, rank, size), training=True)
    np.testing.assert_allclose(layer.moving_variance.numpy(), x.astype(np.float64).var(0), rtol=1e-5)
    np.testing.assert_allclose(layer.moving_mean.numpy(), x.astype(np.float64).mean(0), rtol=1e-6)


@pytest.mark.parametrize("dtype", ["mixed_float16", "mixed_bfloat16", "float64"])
def test_dtypes(hvd, rank, size, dtype):
    """Halves are summed in float32: 60000 of them have no sum in float16."""
    x = values(size, (300,), 200, offset=200.0)
    expected, got = plain(dtype=dtype, momentum=0.0), synced(dtype=dtype, momentum=0.0)
    whole, part = expected(x, training=True), got(mine(x, rank, size), training=True)
    assert part.dtype == whole.dtype
    tolerance = 1e-6 if dtype == "float64" else 1e-2
    assert distance(tf.cast(part, "float64").numpy(), mine(tf.cast(whole, "float64").numpy(), rank, size)) < tolerance
    np.testing.assert_allclose(got.moving_variance.numpy(), expected.moving_variance.numpy(), rtol=1e-4)


# --- training ---


def model_with(normalization, shared: bool = False) -> keras.Model:
    """Two such layers, or one called twice."""
    keras.utils.set_random_seed(7)
    inputs = keras.Input((6,))
    first = normalization(momentum=0.8)
    x = first(keras.layers.Dense(5, activation="tanh")(inputs))
    x = keras.layers.Dense(5)(x)
    x = (first if shared else normalization(momentum=0.8))(x)
    return keras.Model(inputs, keras.layers.Dense(2)(keras.layers.Activation("tanh")(x)))


def fitted(model, optimizer, x, y, batch, jit_compile=False):
    model.compile(optimizer, loss="mse", jit_compile=jit_compile)
    with_variables(model).fit(x, y, batch_size=batch, epochs=4, shuffle=False, verbose=0)
    return model


def data(size: int) -> tuple[np.ndarray, np.ndarray]:
    """Whole batches of ROWS rows for each rank."""
    random = np.random.default_rng(3)
    x = random.normal(1.0, 2.0, (5 * size * ROWS, 6)).astype(np.float32)
    return x, np.tanh(x[:, :2] - x[:, 2:4])


def part_of(array: np.ndarray, rank: int, size: int) -> np.ndarray:
    return array.reshape(-1, size, ROWS, array.shape[-1])[:, rank].reshape(-1, array.shape[-1])


@pytest.mark.parametrize(
    ("shared", "jit_compile"),
    [
        pytest.param(False, False, id="two layers"),
        pytest.param(True, True, id="one layer called twice, compiled by XLA"),
        *in_full(pytest.param(True, False, id="one layer called twice")),
    ],
)
def test_training_matches_one_process_on_the_whole_batch(hvd, rank, size, mpi, shared, jit_compile):
    if jit_compile and size == 1:
        pytest.skip("one rank has Keras's own layer, and XLA rounds in other places than the oracle")
    x, y = data(size)
    expected = fitted(model_with(plain, shared), keras.optimizers.SGD(0.1, momentum=0.9), x, y, ROWS * size)
    optimizer = hvk.DistributedOptimizer(keras.optimizers.SGD(0.1, momentum=0.9))
    mine = [part_of(array, rank, size) for array in (x, y)]
    got = fitted(model_with(synced, shared), optimizer, *mine, ROWS, jit_compile)
    assert distance(flat_weights(got), flat_weights(expected)) < 1e-5
    assert len({weights.tobytes() for weights in mpi.allgather(flat_weights(got))}) == 1


def test_layers_made_in_another_order_still_match(hvd, rank, size):
    """Rank 0 makes a model more than the others, so that Keras numbers its layers differently."""
    if rank == 0:
        model_with(synced)
    x, y = data(size)
    got = fitted(model_with(synced), hvk.DistributedOptimizer(keras.optimizers.SGD(0.1)), x[:8], y[:8], ROWS)
    assert np.isfinite(flat_weights(got)).all()


def collectives_of(function) -> int:
    core().trace_start()
    function()
    asked = [event["name"] for event in core().trace_stop() if event["what"] == "op_announced"]
    return len({name for name in asked if "sync_batch_normalization" in name})


def test_one_collective_in_each_direction_and_none_in_inference(hvd, rank, size):
    if size == 1:
        pytest.skip("one rank needs no collectives")
    x = tf.constant(values(1, (3,)))
    layer = synced()
    layer.build(x.shape)

    @tf.function
    def train():
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(layer(x, training=True) ** 3)
        return tape.gradient(loss, x)

    assert collectives_of(train) == 2
    assert collectives_of(lambda: layer(x, training=False)) == 0
    layer.trainable = False
    assert collectives_of(lambda: layer(x, training=True)) == 0


def test_a_rank_that_feeds_nothing_counts_nothing(hvd, rank, size):
    """The last rank takes part with a batch that is none."""
    if size == 1:
        pytest.skip("the only rank is always active")
    x = values(size, (3,))
    x[-ROWS:] = 1e3
    active = active_ranks.ActiveRanks()
    active.begin_step(float(rank < size - 1))
    got = synced(momentum=0.0)
    with running.within(active=active):
        tf.function(lambda: got(mine(x, rank, size), training=True))()
    np.testing.assert_allclose(got.moving_mean.numpy(), x[:-ROWS].mean(0), rtol=1e-5)
    np.testing.assert_allclose(got.moving_variance.numpy(), x[:-ROWS].var(0), rtol=1e-5)


def test_ranks_that_run_out_of_data_keep_the_statistics_of_all(hvd, rank, size, mpi):
    """Rank r has r + 1 batches. A rank without data takes part in the layer's collectives, and its moving statistics
    follow those of the ranks that are still active."""
    x, y = data(1)
    rows = ROWS * (rank + 1)
    optimizer = hvk.DistributedOptimizer(keras.optimizers.SGD(0.1))
    model = fitted(model_with(synced), optimizer, x[:rows] + rank, y[:rows], ROWS)
    everybody = mpi.allgather(flat_weights(model))
    assert all(np.array_equal(theirs, everybody[0]) for theirs in everybody)


@pytest.mark.parametrize("passes", [2, *in_full(1)])
def test_ranks_of_unequal_weight_learn_as_one_process(hvd, rank, size, passes):
    """Rank 0 has 4 batches and the others 2: statistics, and their gradients, are those of the batches that exist."""
    x, y = data(size)
    steps = [slice(ROWS * i * size, ROWS * (i * size + (size if i < 2 else 1))) for i in range(4)]
    accumulating = {} if passes == 1 else {"gradient_accumulation_steps": passes}
    expected = model_with(plain)
    expected.compile(keras.optimizers.SGD(0.1, **accumulating), loss="mse")
    for step in steps:
        expected.train_on_batch(x[step], y[step])
    of_rank = [np.arange(step.start, step.stop)[ROWS * rank :][:ROWS] for step in steps]
    got = model_with(synced)
    average = {"backward_passes_per_step": passes, "average_aggregated_gradients": True}
    got.compile(hvk.DistributedOptimizer(keras.optimizers.SGD(0.1), **average), loss="mse")
    got.fit(*(array[np.concatenate(of_rank)] for array in (x, y)), batch_size=ROWS, shuffle=False, verbose=0)
    assert distance(flat_weights(got), flat_weights(expected)) < 1e-5


@pytest.mark.parametrize("passes", [2, *in_full(None)])
def test_rows_that_ranks_do_not_divide_count_as_in_one_process(hvd, size, passes):
    """Under `keras.distribution`: a batch of 2 R - 1 rows, then one of 1."""
    x, y = (array[: 2 * size] for array in data(size))
    expected, got = model_with(plain), model_with(synced)
    optimizers = [keras.optimizers.SGD(0.1, gradient_accumulation_steps=passes) for _ in range(2)]
    expected.compile(optimizers[0], loss="mse")
    expected.fit(x, y, batch_size=max(2 * size - 1, 1), shuffle=False, verbose=0)
    with distributed():
        got.compile(optimizers[1], loss="mse")
        got.fit(x, y, batch_size=max(2 * size - 1, 1), shuffle=False, verbose=0)
    assert distance(flat_weights(got), flat_weights(expected)) < 1e-5


# --- constructor and configuration ---


def test_constructor(hvd):
    assert hvd.SyncBatchNormalization is synced
    assert synced(fused=False, momentum=0.5, name="mine").momentum == 0.5
    assert synced(fused=None).get_config().keys() == plain().get_config().keys()
    with pytest.raises(TypeError, match="by name, for example axis"):
        synced(1)


def test_clones_stay_synchronized(hvd):
    clone = keras.models.clone_model(model_with(synced))
    assert sum(isinstance(layer, synced) for layer in clone.layers) == 2


def test_files_keep_it(hvd, rank, tmp_path):
    model = model_with(synced)
    model.layers[2].moving_mean.assign([1.0, 2.0, 3.0, 4.0, 5.0])
    for name in ("model.keras", "model.h5"):
        model.save(tmp_path / name)
        loaded = keras.models.load_model(tmp_path / name)
        assert [type(layer) for layer in loaded.layers] == [type(layer) for layer in model.layers]
        np.testing.assert_array_equal(flat_weights(loaded), flat_weights(model))
    model.save_weights(tmp_path / "model.weights.h5")
    other = model_with(plain)
    other.load_weights(tmp_path / "model.weights.h5")
    np.testing.assert_array_equal(flat_weights(other), flat_weights(model))


PLAIN_KERAS = """
import sys
import keras, numpy as np
name = "smddp_tf>SyncBatchNormalization"
for path in sys.argv[1:]:
    custom = {name: keras.layers.BatchNormalization} if path.endswith(".h5") else None
    model = keras.models.load_model(path, custom_objects=custom)
    normal = [layer for layer in model.layers if type(layer) is keras.layers.BatchNormalization]
    assert len(normal) == 2, model.layers
    np.testing.assert_array_equal(normal[0].moving_mean.numpy(), [1.0, 2.0, 3.0, 4.0, 5.0])
assert "smddp_tf" not in sys.modules
"""


@pytest.mark.deadline(120)
def test_files_load_in_plain_keras_without_this_library(hvd, size, tmp_path):
    if size > 1:
        pytest.skip("a file does not depend on the number of ranks")
    model = model_with(synced)
    model.layers[2].moving_mean.assign([1.0, 2.0, 3.0, 4.0, 5.0])
    files = [tmp_path / "model.keras", tmp_path / "model.h5"]
    for file in files:
        model.save(file)
    command = [sys.executable, "-c", PLAIN_KERAS, *map(str, files)]
    child = subprocess.run(command, capture_output=True, text=True, timeout=100, cwd=tmp_path, check=False)
    assert child.returncode == 0, child.stderr[-3000:]
