"""`keras.remat` and `keras.RematScope`: activations computed again in the backward pass, reduced as ever."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

import smddp_tf.keras as hvk
from tests.support.early_variables import with_variables
from tests.variants import in_full

pytestmark = pytest.mark.ranks("2")

if not hasattr(keras, "remat"):
    pytest.skip("keras.remat came with Keras 3.9", allow_module_level=True)

LENGTH, WIDTH, BATCH, STEPS = 12, 16, 4, 12


class Block(keras.layers.Layer):
    """A residual block, of which `remat` keeps the input only."""

    def __init__(self, remat: bool, dropout: float = 0.0) -> None:
        super().__init__()
        self.remat = remat
        self.norm = keras.layers.LayerNormalization()
        self.up = keras.layers.Dense(4 * WIDTH, activation="gelu")
        self.down = keras.layers.Dense(WIDTH)
        self.dropout = keras.layers.Dropout(dropout, seed=5)

    def build(self, shape) -> None:
        self.norm.build(shape)
        self.up.build(shape)
        self.down.build((*shape[:-1], 4 * WIDTH))
        self.built = True

    def branch(self, x):
        return self.down(self.up(self.norm(x)))

    def call(self, x):
        branch = keras.remat(self.branch) if self.remat else self.branch
        return x + self.dropout(branch(x))

    def compute_output_shape(self, shape):
        return shape


def model_of(remat: bool, **options) -> keras.Model:
    keras.utils.set_random_seed(7)
    blocks = [Block(remat, **options) for _ in range(2)]
    pooled = keras.layers.GlobalAveragePooling1D()
    return keras.Sequential([keras.Input((LENGTH, WIDTH)), *blocks, pooled, keras.layers.Dense(1, dtype="float32")])


def data_of(rank: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(50 + rank)
    x = random.normal(size=(BATCH * STEPS, LENGTH, WIDTH)).astype(np.float32)
    return x, (x.mean(1)[:, :1] * (1 + rank) + np.sin(x[:, 0, 1:2])).astype(np.float32)


def fitted(rank: int, model: keras.Model, partition_state=None, **compiled) -> list[np.ndarray]:
    optimizer = keras.optimizers.SGD(0.05, momentum=0.9)
    model.compile(hvk.DistributedOptimizer(optimizer, partition_state=partition_state), loss="mse", **compiled)
    start = model.get_weights()
    if partition_state is None:
        with_variables(model)
    model.fit(*data_of(rank), batch_size=BATCH, shuffle=False, verbose=0)
    assert any(not np.array_equal(one, first) for one, first in zip(model.get_weights(), start)), "nothing was learned"
    return model.get_weights()


def assert_close(ours: list[np.ndarray], expected: list[np.ndarray], within: float = 1e-6) -> None:
    for one, other in zip(ours, expected):
        scale = max(1.0, float(np.max(np.abs(other.astype(np.float32)))))
        np.testing.assert_allclose(one, other, rtol=0, atol=within * scale)


@pytest.mark.parametrize("how", ["graph", *in_full("XLA", "eager", "world", "mixed_bfloat16")])
def test_fit_gives_the_weights_without_remat(rank, how):
    # XLA fuses the two programs differently, and bfloat16 has 8 bits.
    within = {"XLA": 5e-6, "mixed_bfloat16": 2e-2}.get(how, 1e-6)
    compiled = {"jit_compile": how == "XLA", "run_eagerly": how == "eager"}
    before = keras.config.dtype_policy()
    try:
        keras.config.set_dtype_policy(how if how == "mixed_bfloat16" else before)
        shard = "world" if how == "world" else None
        whole, ours = (fitted(rank, model_of(remat), shard, **compiled) for remat in (False, True))
    finally:
        keras.config.set_dtype_policy(before)
    assert_close(ours, whole, within)


def test_fit_gives_the_weights_of_one_process(rank, size):
    ours = fitted(rank, model_of(True))
    alone = model_of(False)
    optimizer = keras.optimizers.SGD(0.05, momentum=0.9)
    batches = [data_of(peer) for peer in range(size)]
    for step in range(STEPS):
        rows = slice(BATCH * step, BATCH * (step + 1))
        x, y = (np.concatenate([part[rows] for part in parts]) for parts in zip(*batches))
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((alone(x) - y) ** 2)
        optimizer.apply(tape.gradient(loss, alone.trainable_variables), alone.trainable_variables)
    assert_close(ours, alone.get_weights())


def test_tape(hvd, rank):
    def looped(remat: bool) -> list[np.ndarray]:
        model, optimizer = model_of(remat), keras.optimizers.SGD(0.05, momentum=0.9)
        x, y = data_of(rank)

        @tf.function
        def step(x, y):
            with hvd.DistributedGradientTape(tf.GradientTape()) as tape:
                loss = tf.reduce_mean((model(x) - y) ** 2)
            optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)

        for at in range(0, BATCH * STEPS, BATCH):
            step(x[at : at + BATCH], y[at : at + BATCH])
        return model.get_weights()

    assert_close(looped(True), looped(False))


def test_scope_of_activations(rank):
    """The mode of `RematScope` that works in a graph whatever the layers are called with."""

    def scoped(mode):
        with keras.RematScope(mode=mode):
            return model_of(False)

    assert_close(fitted(rank, scoped("activations")), fitted(rank, scoped(None)))


def test_dropout_beside_the_function(rank):
    """Random layers stay outside of what is computed again, where they would draw twice."""
    assert_close(fitted(rank, model_of(True, dropout=0.3)), fitted(rank, model_of(False, dropout=0.3)))


def test_weights_in_parts(hvd, rank):
    """Kernels that are gathered for the forward pass, for what is computed again, and for its gradients."""
    with hvk.partition_weights(min_elements=500):
        ours = model_of(True)
    full = model_of(True)
    fitted(rank, ours)
    fitted(rank, full)
    for one, other in zip(ours.layers[:2], full.layers[:2]):
        assert one.up.kernel.part.shape.rank == 1
        assert_close(
            [one.up.kernel.numpy(), one.down.kernel.numpy()], [each.kernel.numpy() for each in (other.up, other.down)]
        )
