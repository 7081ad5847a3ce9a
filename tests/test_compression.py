"""`Compression.int8`: 8-bit blocks between nodes, in every place that takes a `compression`."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.native_module import core
from tests.variants import in_full

pytestmark = pytest.mark.ranks("2")

BLOCK, LEAST = 256, 16384  # elements with one scale; of a tensor that is quantised
RNG_SHAPE = (96, 512)


def values(rank: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, rank]).standard_normal(RNG_SHAPE).astype(np.float32)


@pytest.fixture(scope="module")
def nodes(hvd, mpi) -> int:
    return len(set(mpi.allgather(mpi.rank - hvd.local_rank())))


def check_close(result, true, nodes):
    """Equal where there is one node; else rounded to a part of the largest of a block, and not exact."""
    error = np.abs(np.asarray(result) - true)
    if nodes == 1:
        np.testing.assert_allclose(result, true, rtol=1e-5, atol=1e-5)
        return
    assert 1e-4 * np.abs(true).mean() < error.mean() < 0.02 * np.abs(true).mean()


def test_allreduce(hvd, rank, size, mpi, nodes, run):
    result = run(lambda x: hvd.allreduce(x, compression=hvd.Compression.int8, name="int8"), tf.constant(values(rank)))
    true = np.mean([values(peer) for peer in range(size)], axis=0, dtype=np.float64)
    check_close(result, true, nodes)
    assert len(set(mpi.allgather(result.numpy().tobytes()))) == 1


def test_a_group_of_several_kinds(hvd, rank, size, nodes):
    tensors = [
        tf.constant(values(rank)),
        tf.constant(np.arange(100, dtype=np.float32) * (rank + 1)),
        tf.constant(np.arange(LEAST, dtype=np.int32) + rank),
        tf.constant(values(rank), tf.float64),
        tf.constant(values(rank), tf.bfloat16),
    ]
    one, small, whole, double, half = hvd.grouped_allreduce(tensors, compression="int8", op=hvd.Sum, name="kinds")
    true = np.sum([values(peer) for peer in range(size)], axis=0, dtype=np.float64)
    check_close(one, true, nodes)
    check_close(double, true, nodes)
    np.testing.assert_array_equal(whole, size * np.arange(LEAST) + size * (size - 1) // 2)
    np.testing.assert_allclose(tf.cast(half, tf.float32), true, rtol=0.05, atol=0.1)
    assert (double.dtype, half.dtype) == (tf.float64, tf.bfloat16)
    np.testing.assert_array_equal(small, np.arange(100) * size * (size + 1) / 2)


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_what_is_not_finite_stays_so(hvd, rank, size, value):
    brought = values(rank)
    brought[3, 7] = value if rank == size - 1 else 1.0
    result = hvd.allreduce(tf.constant(brought), compression="int8", name=f"finite.{value}").numpy()
    np.testing.assert_array_equal(result[3, 7], value)
    result[3, 7] = 0
    assert np.isfinite(result).all()


def test_bytes_between_nodes(hvd, rank, nodes, mpi):
    """A quarter, and a scale of two bytes for each block."""
    sent = []
    for wire in ("", "int8"):
        array = np.ascontiguousarray(np.tile(values(rank).ravel(), 16))
        before = core().stats()
        core().allreduce([array], "float32", f"int8.bytes.{wire}", 1, wire_dtype=wire)
        sent.append([core().stats()[key] - before[key] for key in ("rail_bytes_sent", "node_bytes_sent")])
    (whole, in_node), (blocks, in_node_of_blocks) = sent
    assert abs(in_node - in_node_of_blocks) < 1000  # control messages are among them
    assert (sum(mpi.allgather(whole)) > 0) == (nodes > 1)
    assert abs(blocks - whole * 258 / 1024) <= 0.002 * whole


def steps_of_tape(hvd, rank, steps, **how):
    """The mean over all steps of what one `tf.function` makes of the same gradients."""
    weights = tf.Variable(tf.zeros(RNG_SHAPE))
    factor = tf.constant(values(rank))

    @tf.function
    def step():
        with hvd.DistributedGradientTape(tf.GradientTape(), **how) as tape:
            loss = tf.reduce_sum(weights * factor)
        return tape.gradient(loss, weights)

    return np.mean([step().numpy().astype(np.float64) for _ in range(steps)], axis=0)


def test_errors_do_not_add_up(hvd, rank, size, nodes):
    """What a step rounds away, the next one sends: the mean of many steps is the true one, far below one rounding."""
    true = np.mean([values(peer) for peer in range(size)], axis=0, dtype=np.float64)
    one = np.abs(steps_of_tape(hvd, rank, 1, compression="int8") - true).mean()
    many = np.abs(steps_of_tape(hvd, rank, 40, compression=hvd.Compression.int8) - true).mean()
    assert many < one / 10 if nodes > 1 else many < 1e-6


def trained(hvd, rank, compression, jit_compile=False, **how):
    keras.utils.set_random_seed(3)
    model = keras.Sequential([keras.Input((128,)), keras.layers.Dense(256, activation="relu"), keras.layers.Dense(128)])
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.05, momentum=0.9), compression=compression, **how)
    model.compile(optimizer, "mse", jit_compile=jit_compile)
    x = np.random.default_rng(rank).standard_normal((64, 128)).astype(np.float32)
    history = model.fit(x, x[:, ::-1], batch_size=16, epochs=5, verbose=0, shuffle=False)
    return model.get_weights(), history.history["loss"][-1]


@pytest.mark.parametrize("how", [{}, {"shard": "world"}, *in_full({"jit_compile": True})], ids=repr)
def test_training(hvd, rank, size, mpi, nodes, how):
    """The weights of all ranks are equal; the loss is that of float32 sums, nearly."""
    if "shard" in how and size == 1:
        pytest.skip("one rank has no parts")
    weights, loss = trained(hvd, rank, "int8", **how)
    plain, plain_loss = trained(hvd, rank, "none", **how)
    assert len(set(mpi.allgather(b"".join(one.tobytes() for one in weights)))) == 1
    assert abs(loss - plain_loss) < 0.01 * plain_loss
    assert any((a != b).any() for a, b in zip(weights, plain)) == (nodes > 1)


def test_rows_are_sent_as_they_are(hvd, rank, size):
    slices = tf.IndexedSlices(tf.constant(values(rank)), tf.range(96), tf.constant([96 * 1000, 512]))
    rows = hvd.allreduce(slices, compression="int8", op=hvd.Sum, name="rows").values
    np.testing.assert_array_equal(rows, np.concatenate([values(peer) for peer in range(size)]))
