"""Weights in parts: every model and every way of training ends with the weights of full ones."""

from __future__ import annotations

import contextlib

import keras
import numpy as np
import pytest
import tensorflow as tf

import smddp_tf.keras as hvk
from smddp_tf.collectives.layouts import layout_of
from smddp_tf.keras.sharding.partitioned_weights import PartitionedWeight
from smddp_tf.keras.sharding.shards import possible_degrees
from tests.variants import in_full

pytestmark = pytest.mark.ranks("2", "2+2", "2+1")

BATCH, STEPS, FEATURES, WORDS = 4, 10, 18, 50  # two epochs: 20 steps
layers = keras.layers


class Own(layers.Layer):
    """A stranger's layer, which uses its weight in its own ways."""

    def build(self, shape):
        self.weight = self.add_weight(shape=(shape[-1], 24), initializer="he_normal", name="weight")
        self.shift = self.add_weight(shape=(24,), initializer="zeros", name="shift")

    def call(self, inputs):
        twice = tf.matmul(inputs, self.weight) + self.shift + inputs @ (self.weight * 0.5)
        return tf.nn.tanh(twice) + tf.reduce_sum(self.weight[:, 0])


class Transposed(layers.Layer):
    """Uses the table of an embedding a second time."""

    def __init__(self, embedding):
        super().__init__()
        self.embedding = embedding

    def call(self, inputs):
        return keras.ops.matmul(inputs, keras.ops.transpose(self.embedding.embeddings))


def dense(**options):
    hidden = [layers.Dense(24, "tanh", **options), layers.Dense(24, "relu", **options)]
    return keras.Sequential([keras.Input((FEATURES,)), *hidden, layers.Dense(1)])


def convolutional():
    shapes = [layers.Reshape((3, 3, 2)), layers.Conv2D(16, 2), layers.BatchNormalization(), layers.Flatten()]
    return keras.Sequential([keras.Input((FEATURES,)), *shapes, layers.Dense(1)])


def recurrent():
    steps = [layers.Reshape((3, 6)), layers.Bidirectional(layers.LSTM(8)), layers.Dense(1)]
    return keras.Sequential([keras.Input((FEATURES,)), *steps])


def attentive():
    tokens = keras.Input((6,), dtype="int32")
    embedding = layers.Embedding(WORDS, 16)
    x = embedding(tokens)
    x = layers.LayerNormalization()(x + layers.MultiHeadAttention(2, 8, use_bias=False)(x, x))
    return keras.Model(tokens, layers.Dense(1)(Transposed(embedding)(layers.GlobalAveragePooling1D()(x))))


def shared():
    inputs, layer = keras.Input((FEATURES,)), layers.Dense(FEATURES, "tanh")
    return keras.Model(inputs, layers.Dense(1)(layer(layer(inputs))))


def frozen():
    model = dense()
    model.layers[0].trainable = False
    return model


def adapted():
    model = dense()
    model.layers[0].enable_lora(2)
    return model


def own():
    return keras.Sequential([keras.Input((FEATURES,)), Own(), layers.Dense(1)])


MODELS = {
    "dense": dense,
    "convolutional": convolutional,
    "recurrent": recurrent,
    "attentive": attentive,
    "shared": shared,
    "frozen": frozen,
    "adapted": adapted,
    "own": own,
    "regularizer": lambda: dense(kernel_regularizer="l2"),
    "constraint": lambda: dense(kernel_constraint="max_norm"),
    "orthogonal": lambda: dense(kernel_initializer="orthogonal"),
    "bfloat16": lambda: dense(dtype="mixed_bfloat16"),
    "float16": lambda: dense(dtype="mixed_float16"),
}


def adamw(**options):
    return keras.optimizers.AdamW(0.01, weight_decay=0.1, **options)


def data_of(rank, model, rows=BATCH * STEPS):
    random = np.random.default_rng(100 + rank)
    is_tokens = model.inputs[0].dtype == "int32"
    x = random.integers(0, WORDS, (rows, 6)) if is_tokens else random.normal(size=(rows, FEATURES)).astype(np.float32)
    return x, (random.normal(size=(rows, 1)) + rank).astype(np.float32)


def made(build, partition=None, min_elements=100):
    """Ranks draw different numbers; full weights begin with those of rank 0, as parts do."""
    keras.utils.set_random_seed(5 + hvk.rank())
    with contextlib.nullcontext() if partition is None else hvk.partition_weights(partition, min_elements=min_elements):
        model = build()
    hvk.broadcast_variables(model.variables, root_rank=0)
    return model


def trained(rank, build, optimizer=adamw, partition=None, compiled=None, rows=BATCH * STEPS, **options):
    model = made(build, partition)
    keras.utils.set_random_seed(7)
    model.compile(
        hvk.DistributedOptimizer(optimizer(), **options), loss="mse", **{"jit_compile": False} | (compiled or {})
    )
    x, y = data_of(rank, model, rows)
    model.fit(x, y, batch_size=BATCH, epochs=2, shuffle=False, verbose=0)
    return model


def weights_of(model):
    """All weights in full, by path."""
    found = {}
    for layer in model._flatten_layers(include_self=False):
        for value in vars(layer).values():
            if hasattr(value, "path") and hasattr(value, "assign"):
                found[value.path.split("/", 1)[-1] + str(len(found))] = value.numpy()
    return found


def assert_equal(ours, full, tolerance=0.0):
    one, other = weights_of(ours), weights_of(full)
    assert len(one) == len(other) > 2
    for mine, expected in zip(one.values(), other.values()):
        np.testing.assert_allclose(mine, expected, rtol=0, atol=tolerance * np.abs(expected).max())


def elements(model):
    return sum(int(np.prod(variable.shape)) for variable in model.variables)


QUICK = ("dense", "attentive", "recurrent", "own", "regularizer")


# Gradients of a weight that is read several times, or whose loss is not of the data alone, are added in another order.
@pytest.mark.parametrize("name", [*QUICK, *in_full(*(name for name in MODELS if name not in QUICK))])
def test_models(hvd, rank, size, name):
    ours, full = trained(rank, MODELS[name], partition="world"), trained(rank, MODELS[name])
    exact = name in ("dense", "convolutional", "frozen", "adapted", "orthogonal", "bfloat16", "float16", "constraint")
    assert_equal(ours, full, 0.0 if exact and size == 2 else 3e-6)
    assert elements(ours) < elements(full) * (0.9 if size == 2 else 0.75)
    x, _ = data_of(0, ours, BATCH)
    np.testing.assert_allclose(ours.predict(x, verbose=0), full.predict(x, verbose=0), rtol=0, atol=2e-5)


WAYS = {
    "eager": {"compiled": {"run_eagerly": True}},
    "xla": {"compiled": {"jit_compile": True}},
    "clipnorm": {"optimizer": lambda: adamw(clipnorm=0.05)},
    "global_clipnorm": {"optimizer": lambda: adamw(global_clipnorm=0.05)},
    "accumulation": {"optimizer": lambda: adamw(gradient_accumulation_steps=2, global_clipnorm=0.05)},
    "passes": {"backward_passes_per_step": 2},
    "loss scale": {"optimizer": lambda: keras.optimizers.LossScaleOptimizer(adamw(clipnorm=0.05))},
    "ema": {"optimizer": lambda: adamw(use_ema=True, ema_overwrite_frequency=5)},
    "state": {"partition_state": "world"},
    "sgd": {"optimizer": lambda: keras.optimizers.SGD(0.05, momentum=0.9)},
}


QUICK_WAYS = ("sgd", "xla", "global_clipnorm", "accumulation")


@pytest.mark.parametrize("name", [*QUICK_WAYS, *in_full(*(name for name in WAYS if name not in QUICK_WAYS))])
def test_ways_to_train(hvd, rank, size, name):
    ours, full = trained(rank, dense, partition="world", **WAYS[name]), trained(rank, dense, **WAYS[name])
    assert_equal(ours, full, 0.0 if name == "sgd" and size == 2 else 3e-6)
    assert name == "state" or elements(ours.optimizer) < elements(full.optimizer)


def test_uneven_data(hvd, rank):
    """A rank has fewer batches than the others, and contributes nothing to the last ones."""
    rows = BATCH * STEPS - (BATCH * 2 if rank == 0 else 0)
    assert_equal(trained(rank, dense, partition="world", rows=rows), trained(rank, dense, rows=rows), 3e-6)


def test_loops_with_a_tape_and_keras_own_optimizer(hvd, rank):
    def run(partition):
        model, optimizer = made(dense, partition), adamw()
        x, y = data_of(rank, model)

        @tf.function
        def step(x, y):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.square(model(x, training=True) - y))
            gradients = hvk.DistributedGradientTape(tape).gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables))

        for first in range(0, len(x), BATCH):
            step(x[first : first + BATCH], y[first : first + BATCH])
        return model

    assert_equal(run("world"), run(None), 3e-6)


def test_each_number_of_parts(hvd, rank, size):
    full = trained(rank, dense)
    for parts in possible_degrees():
        ours = trained(rank, dense, partition=parts)
        assert_equal(ours, full, 3e-6)
        kernel = ours.layers[0].kernel
        assert isinstance(kernel, PartitionedWeight) == (parts > 1)
        assert parts == 1 or layout_of(kernel.part).parts == parts


def test_files_have_full_weights(hvd, rank, shared_folder):
    ours = trained(rank, dense, partition="world")
    ours.save(shared_folder / "ours.keras")
    ours.save_weights(shared_folder / "ours.weights.h5")
    hvk.barrier()
    plain = keras.models.load_model(shared_folder / "ours.keras")
    assert_equal(ours, plain)
    slots = [np.asarray(slot) for slot in plain.optimizer.variables[2:]]
    assert slots[0].shape == (FEATURES, 24)
    assert all(np.abs(slot).max() > 0 for slot in slots)
    with hvk.partition_weights(min_elements=100):
        again = hvk.load_model(shared_folder / "ours.keras")
    assert elements(again.optimizer) == elements(ours.optimizer)
    empty = made(dense, "world")
    empty.load_weights(shared_folder / "ours.weights.h5")
    for one in (again, empty):
        assert_equal(one, plain)
    for mine, kept in zip(again.optimizer.variables, ours.optimizer.variables):
        np.testing.assert_array_equal(mine, kept)


def awaited(op):
    """The names of all operations that must have run before it."""
    found, new = set(), [op]
    while new:
        inputs = {before for one in new for before in (*one.control_inputs, *(each.op for each in one.inputs))}
        new = inputs - found
        found |= inputs
    return {one.name for one in found}


def test_weights_are_gathered_twice_and_in_order(hvd, rank):
    """Once for the forward pass, which frees it, and for the backward pass; neither before it is needed."""
    model = made(
        lambda: keras.Sequential([keras.Input((FEATURES,)), *(layers.Dense(FEATURES, "tanh") for _ in range(5))]),
        "world",
    )
    x, _ = data_of(rank, model)

    @tf.function(autograph=False)
    def gradients(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(model(x))
        return tape.gradient(loss, model.trainable_variables)

    operations = gradients.get_concrete_function(tf.constant(x)).graph.get_operations()
    gathers = [op for op in operations if op.type == ("SmddpGatherPart" if hvk.is_homogeneous() else "SmddpAllgather")]
    kernel_shape = model.layers[0].kernel.part.shape
    forward, backward = gathers[:5], gathers[5:]
    assert len(backward) == 4  # the first layer's inputs need no gradient
    assert all(any("gradient_tape" in name for name in awaited(gather)) for gather in backward)
    assert not any("gradient_tape" in name for gather in forward for name in awaited(gather))
    reads = [op for op in operations if op.type == "ReadVariableOp" and op.outputs[0].shape == kernel_shape]
    assert [bool(read.control_inputs) for read in reads] == [
        False,
        False,
        False,
        True,
        True,
    ]  # the first two begin with the function
    assert not any("gradient_tape" in each.name for op in forward for each in op.outputs[0].consumers())


def test_reading_and_writing(hvd, rank, size):
    model = made(dense, "world")
    kernel = model.layers[0].kernel
    assert kernel.shape == (FEATURES, 24)
    assert any(kernel.part is each for each in model.trainable_variables)
    value = np.arange(FEATURES * 24, dtype=np.float32).reshape(FEATURES, 24)
    kernel.assign(value)
    np.testing.assert_array_equal(kernel.numpy(), value)
    np.testing.assert_array_equal(tf.convert_to_tensor(kernel) * 2, value * 2)
    first, end = layout_of(kernel.part).span(rank)
    np.testing.assert_array_equal(kernel.part.numpy(), value.reshape(-1)[first:end])
    assert repr(kernel).endswith(f"shape=({FEATURES}, 24), in {size} parts>")
    kernel.trainable = False
    assert not any(kernel.part is each for each in model.trainable_variables)
    with pytest.raises(NotImplementedError, match="tf.train.Checkpoint would keep this rank's part only"):
        tf.train.Checkpoint(kernel=kernel).save("/nonexistent/checkpoint")


def test_layers_that_count_in_integers_are_as_ever(hvd):
    """`Normalization` asks for weights of "int", which is no dtype of TensorFlow's."""
    with hvk.partition_weights(min_elements=1):
        layer = keras.layers.Normalization()
        layer.adapt(np.arange(6.0).reshape(6, 1))
    np.testing.assert_allclose(layer(np.array([[2.5]])), [[0.0]], atol=1e-6)


def test_mistakes(hvd, rank, size):
    with pytest.raises(ValueError, match="`min_elements` must be at least 1"), hvk.partition_weights(min_elements=0):
        pass
    with pytest.raises(ValueError, match="must divide the"), hvk.partition_weights(size + 1):
        pass
    with pytest.warns(UserWarning, match="no weight of 65536") if rank == 0 else contextlib.nullcontext():
        made(dense, "world", 1 << 16)
    model = made(dense, "world")
    model.compile(hvk.DistributedOptimizer(keras.optimizers.Adafactor(0.01)), loss="mse")
    with pytest.raises(NotImplementedError, match="Adafactor, Lamb and Muon would see one rank's part"):
        model.fit(*data_of(0, model), batch_size=BATCH, verbose=0)
    for options in ({"op": hvk.Sum}, {"scale_local_gradients": False}):
        model = made(dense, "world")
        model.compile(hvk.DistributedOptimizer(adamw(), **options), loss="mse")
        with pytest.raises(NotImplementedError, match="are averaged over all ranks"):
            model.fit(*data_of(0, model), batch_size=BATCH, verbose=0)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(model(data_of(0, model)[0]))
    with pytest.raises(NotImplementedError, match="are averaged over all ranks"):
        hvk.DistributedGradientTape(tape, op=hvk.Sum).gradient(loss, model.trainable_variables)
