"""Horovod's arguments of the Keras side: local variables, groups, load_model, and the module for `horovod.keras`."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

import smddp_tf.compat.horovod.keras as standalone
import smddp_tf.keras as hvk
from tests.support.keras_training import dense_model, same_on_all_ranks

pytestmark = pytest.mark.ranks("2")

ROWS = 4


def mean_weight(size: int) -> float:
    return (size + 1) / 2


@pytest.mark.parametrize("in_graph", [False, True])
@pytest.mark.parametrize(("scale", "passes"), [(True, 1), (False, 1), (True, 2)])
def test_local_variables_of_an_optimizer(hvd, rank, size, in_graph, scale, passes):
    """Of other shapes on each rank, with several passes for one update."""
    shared, mine = keras.Variable([0.0]), keras.Variable(np.zeros(rank + 1, np.float32))
    optimizer = hvk.DistributedOptimizer(
        keras.optimizers.SGD(1.0), backward_passes_per_step=passes, scale_local_gradients=scale
    )
    optimizer.register_local_var(mine)

    def step():
        optimizer.apply([tf.constant([rank + 1.0]), tf.fill([rank + 1], rank + 1.0)], [shared, mine])

    run = tf.function(step) if in_graph else step
    for _ in range(passes):
        run()
    np.testing.assert_allclose(shared, [-passes * mean_weight(size)], rtol=1e-6)
    expected = -passes * (rank + 1.0) / (size if scale else 1)
    np.testing.assert_allclose(mine, [expected] * (rank + 1), rtol=1e-6)


def test_an_infinity_in_a_local_gradient_skips_the_step_on_all(hvd, rank, size):
    shared, mine = keras.Variable([0.0]), keras.Variable([0.0])
    inner = hvk.DistributedOptimizer(keras.optimizers.SGD(1.0))
    inner.register_local_var(mine)
    optimizer = keras.optimizers.LossScaleOptimizer(inner, initial_scale=2.0)
    bad = tf.constant([np.inf if rank == size - 1 else 2.0], tf.float32)
    optimizer.apply([tf.constant([2.0]), bad], [shared, mine])
    np.testing.assert_array_equal([shared.numpy(), mine.numpy()], [[0.0], [0.0]])
    optimizer.apply([tf.constant([rank + 1.0]), tf.constant([rank + 1.0])], [shared, mine])  # the scale is now 1
    np.testing.assert_allclose(shared, [-mean_weight(size)])
    np.testing.assert_allclose(mine, [-(rank + 1.0) / size])


def model_with_part_of_a_table(rank: int) -> keras.Model:
    """Each rank's table has rows of its own; what follows is shared, and begins apart."""
    keras.utils.set_random_seed(11 + rank)
    layers = [keras.layers.Embedding(3 + rank, 4), keras.layers.Flatten(), keras.layers.Dense(1)]
    return keras.Sequential([keras.Input((2,), dtype="int32"), *layers])


def test_fit_with_a_local_layer(hvd, rank, size, mpi, recwarn):
    model = model_with_part_of_a_table(rank)
    table = model.layers[0]
    optimizer = hvk.PartialDistributedOptimizer(keras.optimizers.Adam(0.01), local_layers=table)
    model.compile(optimizer, loss="mse")
    before = table.get_weights()[0]
    broadcast = hvk.callbacks.BroadcastGlobalVariablesCallback(0, local_variables=[])
    for weight in table.trainable_weights:
        broadcast.register_local_var(weight)
    x = np.full((ROWS * 2, 2), rank + 2, np.int32)
    y = np.full((ROWS * 2, 1), rank + 1.0, np.float32)
    early = keras.callbacks.EarlyStopping("loss", restore_best_weights=True)
    model.fit(x, y, batch_size=ROWS, epochs=2, verbose=0, callbacks=[broadcast, early])
    after = table.get_weights()[0]
    assert after.shape == (3 + rank, 4)
    np.testing.assert_array_equal(after[:2], before[:2])  # not those of rank 0
    assert (after[rank + 2] != before[rank + 2]).all()
    assert same_on_all_ranks(mpi, model.layers[-1].get_weights())
    model.fit(x, y, batch_size=ROWS, verbose=0)  # nobody broadcasts: the weights are compared
    assert not [w for w in recwarn if "do not train the same model" in str(w.message)]


def test_partial_optimizer_arguments(hvd, rank, size):
    for local_layers in (None, [], [keras.layers.Dense(1), keras.layers.Dense(2)]):
        assert hvk.PartialDistributedOptimizer(keras.optimizers.SGD(), local_layers=local_layers) is not None
    with pytest.raises(ValueError, match="must be a Keras layer or a list of Keras layers"):
        hvk.PartialDistributedOptimizer(keras.optimizers.SGD(), local_layers=[keras.Variable(1.0)])
    scaled = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(1.0), initial_scale=1.0)
    layer = keras.layers.Dense(1, use_bias=False)
    optimizer = standalone.PartialDistributedOptimizer(scaled, local_layers=layer)
    layer.build((None, 1))  # later than the optimizer
    before = layer.kernel.numpy()
    optimizer.apply([tf.constant([[rank + 1.0]])], [layer.kernel])
    np.testing.assert_allclose(before - layer.kernel.numpy(), [[(rank + 1.0) / size]], rtol=1e-5)


def test_load_model_takes_the_optimizers_arguments(hvd, rank, size, tmp_path):
    """One's own class, which the file names but Keras does not know, and settings that are in no file."""

    class MySGD(keras.optimizers.SGD):
        pass

    model = dense_model()
    model.compile(hvk.DistributedOptimizer(MySGD(1.0), backward_passes_per_step=2), loss="mse")
    path = tmp_path / f"model-{rank}.keras"
    model.save(path)
    loaded = hvk.load_model(path, custom_optimizers=[MySGD], op=hvd.Sum, backward_passes_per_step=2)
    assert isinstance(loaded.optimizer, MySGD)
    weight = loaded.layers[-1].bias
    grads = [tf.fill(v.shape, rank + 1.0) for v in loaded.trainable_variables]
    before = weight.numpy()
    loaded.optimizer.apply(grads, loaded.trainable_variables)
    np.testing.assert_array_equal(weight, before)
    loaded.optimizer.apply(grads, loaded.trainable_variables)
    np.testing.assert_allclose(weight.numpy() - before, [-2.0 * size * mean_weight(size)] * 3, rtol=1e-6)


def test_values_are_reduced_as_in_each_module(hvd, rank, size):
    with pytest.raises(ValueError, match="only one of them"):
        standalone.allreduce(1.0, op=hvd.Sum)  # `average` is True unless given
    np.testing.assert_allclose(standalone.allreduce(rank + 1.0), mean_weight(size))
    np.testing.assert_allclose(standalone.allreduce(rank + 1.0, "total", None, op=hvd.Sum), mean_weight(size) * size)
    with pytest.warns(DeprecationWarning):
        np.testing.assert_allclose(standalone.allreduce(rank + 1.0, average=False), mean_weight(size) * size)
    for module in (hvk, standalone):
        rows = module.reducescatter([[rank + 1.0]] * (size + 1), "rows", hvd.Sum)
        np.testing.assert_allclose(rows, [[mean_weight(size) * size]] * (2 if rank == 0 else 1))
        for name in module.__all__:
            assert getattr(module, name) is not None
        with pytest.raises(RuntimeError, match="does not support eager execution"):
            module.broadcast_global_variables(0)
    assert standalone.Adasum == hvd.Adasum


def test_standalone_optimizer_and_checkpoint(hvd, rank, size, tmp_path):
    variable = keras.Variable([0.0])
    optimizer = standalone.DistributedOptimizer(
        keras.optimizers.SGD(1.0), "name", "", "", standalone.Compression.none, False, 1.0, hvd.Sum, 0, None
    )
    optimizer.apply([tf.constant([rank + 1.0])], [variable])
    np.testing.assert_allclose(variable, [-size * mean_weight(size)])
    best = standalone.callbacks.BestModelCheckpoint("loss", 0, "min", "epoch")
    best.filepath = tmp_path / "best.keras"
    model = dense_model()
    model.compile("sgd", loss="mse")
    model.fit(np.ones((ROWS, 6), np.float32), np.ones((ROWS, 3), np.float32), verbose=0, callbacks=[best])
    assert (tmp_path / "best.keras").exists() == (rank == 0)
    with pytest.raises(TypeError):
        standalone.callbacks.BestModelCheckpoint(save_weights_only=True)


def test_operations_that_keras_optimizers_do_not_take(hvd):
    for make in (hvk.DistributedOptimizer, hvd.DistributedOptimizer, standalone.DistributedOptimizer):
        for op in (hvd.Min, hvd.Max, hvd.Product, 2, -1):  # 2 is Adasum
            with pytest.raises(ValueError, match="`op`"):
                make(keras.optimizers.SGD(), op=op)
    for passes in (0, -1):
        with pytest.raises(ValueError, match="at least 1"):
            hvk.DistributedOptimizer(keras.optimizers.SGD(), backward_passes_per_step=passes)


def test_without_the_alias_wrapped_optimizers_name_keras(hvd):
    for plain in (keras.optimizers.Adam(), keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD())):
        name = type(plain).__name__
        optimizer = hvk.DistributedOptimizer(plain)
        assert repr(optimizer).startswith(f"<keras.optimizers.{name} object")
        assert type(optimizer) is optimizer.__class__
        assert type(optimizer).__module__ == "keras.optimizers"
