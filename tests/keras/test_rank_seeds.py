"""Random numbers of layers: other ones on every rank, from states that are the same on all ranks."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

import smddp_tf.keras as hvk
from smddp_tf.elastic import TensorFlowKerasState
from smddp_tf.keras import rank_seeds
from tests.support.keras_training import flat_weights
from tests.variants import combined, in_full

pytestmark = pytest.mark.ranks("2")

ROWS, FEATURES = 8, 16


class Nested(keras.layers.Layer):
    """Generators in a list, in a layer inside of this one, and one of the layer's own."""

    def __init__(self):
        super().__init__()
        self.inner = keras.Sequential([keras.layers.GaussianNoise(1.0), keras.layers.Dropout(0.5)])
        self.several = [keras.random.SeedGenerator(3)]
        self.several.append(keras.random.SeedGenerator(4))

    def call(self, x, training=False):
        noise = [keras.random.normal(tf.shape(x), seed=generator) for generator in self.several]
        return self.inner(x, training=training) + tf.add_n(noise)


LAYERS = {
    "dropout": lambda: keras.layers.Dropout(0.5),
    "dropout with a seed": lambda: keras.layers.Dropout(0.5, seed=1),
    "augmentation": lambda: keras.Sequential(
        [keras.layers.Reshape((4, 4, 1)), keras.layers.RandomTranslation(0.5, 0.5), keras.layers.RandomFlip()]
    ),
    "nested": Nested,
}


def inputs() -> tf.Tensor:
    return tf.reshape(tf.range(1.0, ROWS * FEATURES + 1), [ROWS, FEATURES])


def drawn(layer) -> np.ndarray:
    return np.asarray(layer(inputs(), training=True))


def all_differ(mpi, values) -> bool:
    everybody = mpi.allgather(np.asarray(values).tobytes())
    return len(set(everybody)) == len(everybody)


def all_equal(mpi, values) -> bool:
    return len(set(mpi.allgather(np.asarray(values).tobytes()))) == 1


def states(model) -> np.ndarray:
    found = [variable.numpy() for variable in model.variables if variable.name == "seed_generator_state"]
    assert found
    return np.stack(found)


@pytest.mark.parametrize(("name", "seed"), combined(list(LAYERS), ["one seed", "a seed of each rank"]))
def test_ranks_draw_differently_after_a_broadcast(hvd, rank, size, mpi, name, seed):
    """With a broadcast or (for ranks of one seed) without, once or twice: the same numbers, other ones on each rank."""
    keras.utils.set_random_seed(5 if seed == "one seed" else 100 + rank)
    layer = LAYERS[name]()
    layer(inputs())
    state = [variable.numpy() for variable in layer.variables]
    if seed == "one seed":
        first = drawn(layer)
        for variable, value in zip(layer.variables, state):
            variable.assign(value)
    hvd.broadcast_variables(layer.variables, root_rank=0)
    once = drawn(layer)
    assert all_equal(mpi, states(layer))
    if seed == "one seed":
        np.testing.assert_array_equal(first, once)
    for variable, value in zip(layer.variables, state):
        variable.assign(value)
    hvd.broadcast_variables(layer.variables, root_rank=0)
    hvd.broadcast_variables(layer.variables, root_rank=size - 1)
    np.testing.assert_array_equal(drawn(layer), once)
    assert all_differ(mpi, once)


def test_rank_0_draws_what_keras_alone_draws(hvd, rank, size, mpi):
    layer = keras.layers.Dropout(0.5, seed=1)
    mine = drawn(layer)
    alone = keras.random.dropout(inputs(), 0.5, seed=keras.random.SeedGenerator(1))
    np.testing.assert_array_equal(mpi.bcast(mine), alone)
    assert np.array_equal(mine, alone) == (rank == 0)


def test_what_belongs_to_the_script_does_not_change(hvd, rank, size, mpi):
    """The global generator, `tf.random`, generators of no layer, initial weights; and one that shall not differ."""
    keras.utils.set_random_seed(7)
    free = keras.random.SeedGenerator(3)
    hvd.broadcast_variables([free.state], root_rank=0)
    assert all_equal(mpi, keras.random.normal([5], seed=free))
    assert all_equal(mpi, keras.random.normal([5]))
    assert all_equal(mpi, tf.random.normal([5]))
    dense = keras.layers.Dense(
        3, kernel_initializer=keras.initializers.RandomNormal(seed=keras.random.SeedGenerator(4))
    )
    dense.build((None, 5))
    assert all_equal(mpi, dense.kernel)
    layer = keras.layers.Dropout(0.5, seed=1)
    layer.seed_generator.same_on_all_ranks = True
    assert all_equal(mpi, drawn(layer))


@pytest.mark.parametrize("when", ["before", "after"])
def test_in_a_step_that_was_traced_before_the_broadcast(hvd, rank, size, mpi, when):
    """Horovod's scripts broadcast after the first step."""
    keras.utils.set_random_seed(100 + rank)
    layer = keras.layers.Dropout(0.5)
    step = tf.function(lambda: layer(inputs(), training=True), jit_compile=False)
    if when == "after":
        step()
    hvd.broadcast_variables(layer.variables, root_rank=0)
    assert all_differ(mpi, step())
    assert all_differ(mpi, step())


def test_layers_that_were_made_before_the_library_came(hvd, rank, size, mpi):
    layer = keras.layers.Dropout(0.5, seed=1)
    delattr(layer.seed_generator, rank_seeds._BELONGS_TO_LAYER)
    assert all_equal(mpi, drawn(layer))
    rank_seeds.note_existing()
    assert all_differ(mpi, drawn(layer))


def test_many_ranks_have_many_seeds():
    seeds = {rank_seeds._scattered(rank) for rank in range(100_000)}
    assert len(seeds) == 100_000
    assert rank_seeds._scattered(0) == 0


# --- training, and going on with it ---


def model_of(seed: int) -> keras.Model:
    keras.utils.set_random_seed(seed)
    layers = [
        keras.layers.Dropout(0.4),
        keras.layers.Dense(8),
        keras.layers.GaussianDropout(0.3),
        keras.layers.Dense(1),
    ]
    model = keras.Sequential([keras.Input((FEATURES,)), *layers])
    model.compile(hvk.DistributedOptimizer(keras.optimizers.Adam(0.01)), "mse")
    return model


def fit(model, rank: int, epochs: int, *callbacks, first: int = 0, rows: int = ROWS) -> np.ndarray:
    random = np.random.default_rng(rank)
    x, y = random.normal(size=(rows, FEATURES)), random.normal(size=(rows, 1))
    options = {"initial_epoch": first, "epochs": epochs, "callbacks": list(callbacks)}
    model.fit(x, y, batch_size=4, shuffle=False, verbose=0, **options)
    return np.concatenate([flat_weights(model), states(model).ravel()])


@pytest.mark.parametrize("data", ["uneven", *in_full("even")])
def test_training_goes_on_as_if_it_had_not_stopped(hvd, rank, size, mpi, tmp_path, data):
    """Rank 0 commits, and sends what it reads to ranks that began with other seeds. Equal seeds give equal runs."""
    rows = ROWS if data == "even" or rank else 2 * ROWS
    sends = hvk.callbacks.BroadcastGlobalVariablesCallback
    model = model_of(100 + rank)
    fit(model, rank, 2, sends(0), rows=rows)
    state = TensorFlowKerasState(model)
    state.commit_to(tmp_path)
    state.commit(wait=True)
    undisturbed = fit(model, rank, 4, first=2, rows=rows)
    assert all_equal(mpi, undisturbed)
    np.testing.assert_array_equal(fit(model_of(100 + rank), rank, 4, sends(0), rows=rows), undisturbed)
    state = TensorFlowKerasState(model_of(200 + rank))
    state.commit_to(tmp_path)
    state.resume()
    state.sync()
    np.testing.assert_array_equal(fit(state.model, rank, 4, sends(0), first=2, rows=rows), undisturbed)


def test_a_file_that_all_ranks_load(hvd, rank, size, mpi, tmp_path):
    """Keras does not save the states of generators; layers with a seed begin with it, on all ranks."""
    path = mpi.bcast(str(tmp_path / "model.keras"))
    model = keras.Sequential([keras.Input((FEATURES,)), keras.layers.Dropout(0.5, seed=3), keras.layers.Dense(1)])
    model.compile(hvk.DistributedOptimizer(keras.optimizers.SGD(0.1)), "mse")
    if rank == 0:
        model.save(path)
    mpi.barrier()
    assert all_differ(mpi, drawn(hvk.load_model(path).layers[0]))
