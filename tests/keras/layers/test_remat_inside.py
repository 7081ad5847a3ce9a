"""Layers and collectives inside of `keras.remat`: reduced again in the backward pass, with the results without it.

What Keras itself does there is shown too, as docs/memory.md warns of it. See also test_remat.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import smddp_tf.keras as hvk
from tests.native_module import core
from tests.support import uneven_data
from tests.support.early_variables import with_variables
from tests.support.embedding_models import cut_model, first_tables, give_first_tables, part, tables_of
from tests.support.embedding_models import data_of as data_of_tables
from tests.support.keras_training import (
    FEATURES,
    ROWS_PER_RANK,
    dense_data,
    distance,
    flat_weights,
    part_of,
    same_on_all_ranks,
)
from tests.variants import in_full

STEPS, WIDTH = 8, 16

pytestmark = [
    pytest.mark.ranks("2"),
    pytest.mark.skipif(not hasattr(keras, "remat"), reason="keras.remat is new in Keras 3.9"),
]


class Remat(keras.layers.Layer):
    """The layers one after the other and their input added; computed again in the backward pass if `remat`.

    Attributes:
        runs: how often `compute` ran: once in a call, and once more where it is computed again.
    """

    def __init__(self, layers: list[keras.layers.Layer], remat: bool, explicit: bool = True) -> None:
        super().__init__()
        self.layers, self.remat, self.explicit, self.runs = layers, remat, explicit, 0

    def build(self, shape: Any) -> None:
        for layer in self.layers:
            layer.build(shape)
            shape = layer.compute_output_shape(shape)

    def call(self, x: Any, training: bool | None = None) -> Any:
        def compute(x: Any) -> Any:
            self.runs += 1
            y = x
            for layer in self.layers:
                takes = self.explicit and isinstance(layer, keras.layers.BatchNormalization)
                y = layer(y, training=training) if takes else layer(y)
            return x + y

        return keras.remat(compute)(x) if self.remat else compute(x)


def block(remat: bool, *first: keras.layers.Layer, **options: Any) -> Remat:
    """The layers `first` and a perceptron."""
    dense = [keras.layers.Dense(WIDTH, activation="gelu"), keras.layers.Dense(FEATURES)]
    return Remat([*first, *dense], remat, **options)


def model_of(remat: bool, norm: Callable[[], keras.layers.Layer] = keras.layers.LayerNormalization, **options: Any):
    keras.utils.set_random_seed(7)
    blocks = [block(remat, norm(), **options) for _ in range(2)]
    return keras.Sequential([keras.Input((FEATURES,)), *blocks, keras.layers.Dense(3, dtype="float32")])


def runs_of(model: keras.Model) -> int:
    return sum(layer.runs for layer in model.layers if isinstance(layer, Remat))


def adamw() -> keras.optimizers.Optimizer:
    return keras.optimizers.AdamW(0.01, weight_decay=0.05)


def mine(rank: int, size: int, steps: int = STEPS) -> list[np.ndarray]:
    return [part_of(array, rank, size) for array in dense_data(size, steps)]


def by_fit(model: keras.Model, x: np.ndarray, y: np.ndarray, **options: Any) -> keras.Model:
    shard = options.pop("shard", None)
    model.compile(hvk.DistributedOptimizer(adamw(), partition_state=shard), loss="mse", **options)
    if shard is None:
        with_variables(model)
    model.fit(x, y, batch_size=ROWS_PER_RANK, shuffle=False, verbose=0)
    return model


def assert_close(ours: Any, expected: Any, within: float) -> None:
    """Graphs with and without a second forward pass are optimized differently, and round differently."""
    for one, other in zip(ours, expected):
        np.testing.assert_allclose(one, other, rtol=0, atol=within)


def buckets_of(model: keras.Model, *data: np.ndarray) -> int:
    """How many buckets of planned gradients the training reduced."""
    before = core().stats()["planned_buckets"]
    by_fit(model, *data)
    return core().stats()["planned_buckets"] - before


def test_gradients_are_reduced_once(rank, size):
    """The second forward pass reduces none by itself."""
    if size == 1:
        pytest.skip("one rank reduces nothing")
    plain, ours = (buckets_of(model_of(remat), *mine(rank, size)) for remat in (False, True))
    assert ours == plain >= STEPS


def sync(momentum: float = 0.9) -> Callable[[], keras.layers.Layer]:
    return lambda: hvk.SyncBatchNormalization(momentum=momentum)


@pytest.mark.parametrize("eager", [False, *in_full(True)])
def test_sync_batch_normalization(rank, size, mpi, eager):
    """It is told that it trains, and counts a batch twice in its moving statistics: the root of the momentum mends it.

    Without being told, it computes the second time as for inference: Keras hands `training` on during the call only.
    """
    data = mine(rank, size)
    plain, ours = (
        by_fit(model_of(*options), *data, run_eagerly=eager) for options in ((False, sync()), (True, sync(0.9**0.5)))
    )
    assert runs_of(ours) > runs_of(plain), "nothing was computed again"
    assert_close(ours.trainable_variables, plain.trainable_variables, 1e-6)
    assert_close(ours.non_trainable_variables, plain.non_trainable_variables, 1e-5)
    assert same_on_all_ranks(mpi, flat_weights(ours))
    untold = by_fit(model_of(True, sync(), explicit=False), *data, run_eagerly=eager)
    assert distance(flat_weights(untold), flat_weights(plain)) > 1e-3
    assert same_on_all_ranks(mpi, flat_weights(untold))


def test_a_rank_has_no_data(rank, size):
    """A rank that has run out of data does not count in the second forward pass either."""
    if size == 1:
        pytest.skip("the only rank always has data")

    def run(remat: bool) -> keras.Model:
        model = uneven_data.compiled(model_of(remat, sync()), uneven_data.adam())
        model.fit(uneven_data.dataset_of(rank), epochs=uneven_data.EPOCHS, verbose=0)
        return model

    assert_close(run(True).trainable_variables, run(False).trainable_variables, 1e-6)


def test_a_reduction_inside(hvd, rank, size, run):
    """`hvd.allreduce` runs again, and its gradient is that of the first."""
    x = tf.constant(np.arange(1, 6, dtype=np.float32) + rank)

    def gradient(remat: bool) -> Any:
        def cube_of_sum(x: tf.Tensor) -> tf.Tensor:
            return hvd.allreduce(x, op=hvd.Sum, name="inside" if remat else "outside") ** 3

        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum((keras.remat(cube_of_sum) if remat else cube_of_sum)(x))
        return tape.gradient(loss, x)

    total = sum(np.arange(1, 6) + other for other in range(size))
    np.testing.assert_allclose(run(gradient, True), size * 3 * total**2, rtol=1e-6)
    np.testing.assert_array_equal(run(gradient, True), run(gradient, False))


class Tables(keras.layers.Layer):
    """Tables that are sharded over the ranks, inside of `keras.remat`."""

    def __init__(self, tables: keras.layers.Layer) -> None:
        super().__init__(name="holder")
        self.inner = tables

    def call(self, inputs: dict[str, Any]) -> Any:
        names = sorted(inputs)

        def look_up(*ids: Any) -> Any:
            rows = self.inner(dict(zip(names, ids)))
            return tf.concat([rows[name] for name in names], axis=-1)

        return keras.remat(look_up)(*(inputs[name] for name in names))


@pytest.mark.parametrize("eager", [False, *in_full(True)])
def test_tables_that_are_cut(rank, size, mpi, eager):
    data = part(data_of_tables(8 * size * 4), rank, size)

    def trained(model: keras.Model) -> keras.Model:
        model.compile(hvk.DistributedOptimizer(keras.optimizers.Adam(0.01)), loss="mse", run_eagerly=eager)
        model.fit(*data, batch_size=8, shuffle=False, verbose=0)
        return model

    def fresh() -> keras.Model:
        return give_first_tables(cut_model(("row_wise", "column_wise", "table_wise")))

    plain, source = trained(fresh()), fresh()
    inputs = source.input
    tables = source.get_layer("tables")
    ours = trained(keras.Model(inputs, source.get_layer("top")(Tables(tables)(inputs))))
    got = tables.get_embedding_tables()
    expected = tables_of(plain)
    if rank == 0:
        for table, other, first in zip([got[name] for name in sorted(got)], expected, first_tables()):
            np.testing.assert_allclose(table, other, rtol=0, atol=1e-6)
            assert not np.array_equal(table, first), "nothing was learned"
    np.testing.assert_allclose(ours.get_layer("top").get_weights()[0], expected[-2], rtol=0, atol=1e-6)


def test_embeddings(rank, size, mpi):
    """Their gradients are rows."""

    def run(remat: bool) -> keras.Model:
        keras.utils.set_random_seed(7)
        embedding = keras.layers.Embedding(50, FEATURES)

        class Words(keras.layers.Layer):
            def build(self, shape: Any) -> None:
                embedding.build(shape)
                self.embedding = embedding

            def call(self, ids: Any) -> Any:
                return (keras.remat(embedding.__call__) if remat else embedding)(ids)

        layers = [Words(), keras.layers.GlobalAveragePooling1D(), keras.layers.Dense(1)]
        model = keras.Sequential([keras.Input((5,), dtype="int32"), *layers])
        ids = np.random.default_rng(rank).integers(0, 50, size=(STEPS * ROWS_PER_RANK, 5)).astype("int32")
        return by_fit(model, ids, ids[:, :1] / np.float32(50))

    plain, ours = run(False), run(True)
    assert distance(flat_weights(ours), flat_weights(plain)) < 1e-6
    assert same_on_all_ranks(mpi, flat_weights(ours))


# What Keras does, alone on each rank.


def mask_and_gradient(dropout: Callable[[tf.Tensor], tf.Tensor]) -> tuple[np.ndarray, np.ndarray]:
    """What the forward pass kept of a vector of ones, and what the backward pass did."""
    weights = tf.Variable(tf.ones([500]))

    @tf.function
    def step(x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        with tf.GradientTape() as tape:
            y = dropout(x * weights)
        return y, tape.gradient(y, weights)

    kept, gradient = step(tf.ones([500]))
    return kept.numpy(), gradient.numpy()


@pytest.mark.parametrize("seed", [None, 3])
def test_dropout_of_keras_draws_another_mask_in_the_backward_pass(rank, seed):
    """A wrong gradient, without an error. When this fails, docs/memory.md warns in vain."""
    layer = keras.layers.Dropout(0.5, seed=seed)
    kept, gradient = mask_and_gradient(keras.remat(lambda x: layer(x, training=True)))
    assert 100 < np.count_nonzero(kept) < 400
    assert np.count_nonzero(kept != gradient) > 100


def test_dropout_with_a_seed_that_was_drawn_outside(rank, size, mpi):
    generator = keras.random.SeedGenerator(11 + rank)

    def dropout(x: tf.Tensor) -> tf.Tensor:
        seed = generator.next()
        return keras.remat(lambda x: tf.nn.experimental.stateless_dropout(x, 0.5, seed))(x)

    kept, gradient = mask_and_gradient(dropout)
    assert 100 < np.count_nonzero(kept) < 400
    np.testing.assert_array_equal(kept, gradient)
    again, _ = mask_and_gradient(dropout)
    assert not np.array_equal(again, kept), "the same mask in every step"
    assert len({each.tobytes() for each in mpi.allgather(kept)}) == size


def scoped(mode: str, **options: Any) -> keras.Model:
    keras.utils.set_random_seed(7)
    with keras.RematScope(mode=mode, **options):
        return keras.Sequential(
            [keras.Input((FEATURES,)), keras.layers.Dense(WIDTH, activation="gelu", name="a"), keras.layers.Dense(3)]
        )


@pytest.mark.parametrize(
    ("mode", "options"),
    [("full", {}), ("larger_than", {"output_size_threshold": 4}), ("list_of_layers", {"layer_names": ["a"]})],
)
def test_scopes_that_keras_refuses_in_graphs(rank, size, mode, options):
    with pytest.raises(ValueError, match="supports keywords arguments only when eager"):
        by_fit(scoped(mode, **options), *mine(rank, size))
