"""What a wrapped optimizer leaves in files and pickles, and load_model."""

from __future__ import annotations

import copy
import json
import pickle
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

import smddp_tf.keras as hvk
from smddp_tf.keras.optimizer import wrap_class
from smddp_tf.keras.reducing import is_wrapped, reduction_of
from tests.parallel.keras_training import (
    OPTIMIZERS,
    ROWS_PER_RANK,
    STEPS,
    dense_data,
    dense_model,
    distance,
    flat_weights,
    one_process,
    part_of,
)


@keras.saving.register_keras_serializable("smddp_tests")
class RegisteredSGD(keras.optimizers.SGD):
    pass


class UnregisteredSGD(keras.optimizers.SGD):
    pass


def reduces(optimizer, rank: int, size: int) -> bool:
    """Whether the optimizer (learning rate 1, plain SGD) applies the ranks' mean."""
    variable = keras.Variable([0.0])
    optimizer.apply([tf.constant([float(rank)])], [variable])
    return bool(np.isclose(variable.numpy()[0], -(size - 1) / 2))


def trained_model(optimizer, rank: int, size: int, steps: int = 3) -> keras.Model:
    x, y = dense_data(size, steps)
    model = dense_model()
    model.compile(optimizer, loss=keras.losses.MeanSquaredError())
    local_x, local_y = part_of(x, rank, size), part_of(y, rank, size)
    model.fit(local_x, local_y, batch_size=ROWS_PER_RANK, shuffle=False, verbose=0)
    return model


def state_of(optimizer) -> list[np.ndarray]:
    return [variable.numpy() for variable in optimizer.variables]


def test_wrapping_keeps_the_object_and_its_state(hvd):
    plain = keras.optimizers.Adam(0.01)
    plain.build([keras.Variable([1.0, 2.0])])
    plain.iterations.assign(5)
    before = state_of(plain)
    wrapped = hvk.DistributedOptimizer(plain)
    assert wrapped is plain
    assert isinstance(wrapped, keras.optimizers.Adam)
    assert type(wrapped).__name__ == "Adam"
    for old, new in zip(before, state_of(wrapped)):
        np.testing.assert_array_equal(old, new)


@pytest.mark.parametrize("optimizer_class", [keras.optimizers.Adam, RegisteredSGD, UnregisteredSGD])
def test_the_configuration_is_that_of_the_plain_optimizer(optimizer_class):
    plain, wrapped = optimizer_class(0.01, name="mine"), optimizer_class(0.01, name="mine")
    hvk.DistributedOptimizer(wrapped)
    plain_config, wrapped_config = (keras.saving.serialize_keras_object(o) for o in (plain, wrapped))
    if optimizer_class is keras.optimizers.Adam:  # Keras names its own classes in one of two ways, both load
        assert wrapped_config.pop("registered_name") in ("Adam", None)
        plain_config.pop("registered_name")
    assert wrapped_config == plain_config


def test_loading_a_registered_class_gives_the_class_of_the_user():
    config = keras.saving.serialize_keras_object(hvk.DistributedOptimizer(RegisteredSGD(0.01)))
    assert type(keras.saving.deserialize_keras_object(config)) is RegisteredSGD


PLAIN_KERAS = """
import json, sys
import keras, numpy as np
found = []
for path in sys.argv[1:]:
    model = keras.models.load_model(path)
    optimizer = model.optimizer
    x, y = np.ones((4, 6), "float32"), np.ones((4, 3), "float32")
    state = [float(np.sum(v.numpy(), dtype="float64")) for v in optimizer.variables]
    if not path.endswith(".h5"):  # Keras 3.15 cannot train on after .h5, whichever optimizer it finds there
        model.fit(x, y, verbose=0)
    steps = int(getattr(optimizer, "inner_optimizer", optimizer).iterations.numpy())
    found.append([type(optimizer).__module__, type(optimizer).__name__, state, steps])
print("FOUND" + json.dumps([found, [m for m in sys.modules if m.startswith("smddp")]]))
"""


@pytest.mark.deadline(180)
def test_files_load_in_plain_keras_without_this_library(hvd, rank, size, mpi, tmp_path):
    """A process that never imports smddp_tf loads model, optimizer and optimizer state, and trains on."""
    optimizers = {
        "adam.keras": keras.optimizers.Adam(0.01, clipnorm=0.1),
        "sgd.h5": keras.optimizers.SGD(0.1, momentum=0.9),
        "scaled.keras": keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1, momentum=0.9)),
    }
    for file, optimizer in optimizers.items():
        trained_model(hvk.DistributedOptimizer(optimizer), rank, size).save(tmp_path / file)
    inner = keras.optimizers.LossScaleOptimizer(hvk.DistributedOptimizer(keras.optimizers.SGD(0.1)))
    trained_model(inner, rank, size).save(tmp_path / "inner.keras")
    if rank > 0:
        return
    files = [str(tmp_path / file) for file in (*optimizers, "inner.keras")]
    command = [sys.executable, "-c", PLAIN_KERAS, *files]
    child = subprocess.run(command, capture_output=True, text=True, timeout=150, cwd=tmp_path, check=False)
    assert child.returncode == 0, child.stderr[-3000:]
    found, ours = json.loads(child.stdout.split("FOUND")[1])
    assert ours == []
    names = [name for _, name, _, _ in found]
    assert names == ["Adam", "SGD", "LossScaleOptimizer", "LossScaleOptimizer"]
    assert all(module.startswith("keras.src.optimizers") for module, *_ in found)
    assert [iterations for *_, iterations in found] == [4, 3, 4, 4]
    for file, (_, _, state, _), optimizer in zip(files, found, (*optimizers.values(), inner)):
        expected = [float(np.sum(value, dtype=np.float64)) for value in state_of(optimizer)]
        if not file.endswith(".h5"):
            np.testing.assert_allclose(state, expected, rtol=1e-6)


def test_training_resumes_as_if_never_interrupted(hvd, rank, size, tmp_path):
    x, y = (part_of(array, rank, size) for array in dense_data(size))
    half = STEPS // 2 * ROWS_PER_RANK
    model = dense_model()
    model.compile(hvk.DistributedOptimizer(OPTIMIZERS["sgd_momentum"]()), loss=keras.losses.MeanSquaredError())
    model.fit(x[:half], y[:half], batch_size=ROWS_PER_RANK, shuffle=False, verbose=0)
    model.save(tmp_path / "half.keras")
    resumed = hvk.load_model(tmp_path / "half.keras")
    assert is_wrapped(resumed.optimizer)
    assert int(resumed.optimizer.iterations.numpy()) == STEPS // 2
    resumed.fit(x[half:], y[half:], batch_size=ROWS_PER_RANK, shuffle=False, verbose=0)
    assert distance(flat_weights(resumed), one_process("sgd_momentum", size)) < 1e-6


def test_load_model_keeps_the_loss_scale_and_takes_compression(hvd, rank, size, tmp_path):
    optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1), initial_scale=128.0)
    trained_model(hvk.DistributedOptimizer(optimizer), rank, size).save(tmp_path / "model.keras")
    loaded = hvk.load_model(tmp_path / "model.keras", compression=hvk.Compression.fp16).optimizer
    assert isinstance(loaded, keras.optimizers.LossScaleOptimizer)
    assert float(loaded.dynamic_scale.numpy()) == 128.0
    assert is_wrapped(loaded)
    assert reduction_of(loaded).settings.compression is hvk.Compression.fp16


@pytest.mark.parametrize("how", ["custom_optimizers", "custom_objects"])
def test_load_model_with_a_class_of_the_user(hvd, rank, size, tmp_path, how):
    trained_model(hvk.DistributedOptimizer(UnregisteredSGD(0.1)), rank, size).save(tmp_path / "model.keras")
    known = [UnregisteredSGD] if how == "custom_optimizers" else {"UnregisteredSGD": UnregisteredSGD}
    loaded = hvk.load_model(tmp_path / "model.keras", **{how: known})
    assert isinstance(loaded.optimizer, UnregisteredSGD)
    assert is_wrapped(loaded.optimizer)


def test_load_model_without_an_optimizer(hvd, tmp_path):
    model = dense_model()
    model.save(tmp_path / "model.keras")
    loaded = hvk.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(flat_weights(loaded), flat_weights(model))


@pytest.mark.parametrize("optimizer_class", [keras.optimizers.SGD, RegisteredSGD])
@pytest.mark.parametrize("copied", [copy.deepcopy, copy.copy, lambda o: pickle.loads(pickle.dumps(o))])
def test_a_copied_optimizer_reduces_with_the_same_settings(hvd, rank, size, optimizer_class, copied):
    original = hvk.DistributedOptimizer(optimizer_class(1.0, clipnorm=100.0), compression=hvk.Compression.bf16)
    twin = copied(original)
    assert twin is not original
    assert isinstance(twin, optimizer_class)
    assert twin.clipnorm == 100.0
    assert reduction_of(twin).settings == reduction_of(original).settings
    assert reduction_of(twin) is not reduction_of(original)
    assert reduces(twin, rank, size)
    assert reduces(original, rank, size)


def test_an_optimizer_made_from_the_configuration_reduces(hvd, rank, size):
    original = hvk.DistributedOptimizer(keras.optimizers.SGD(1.0))
    assert reduces(type(original).from_config(original.get_config()), rank, size)


def test_wrap_class_alone(hvd, rank, size):
    assert wrap_class(keras.optimizers.SGD) is wrap_class(keras.optimizers.SGD)
    assert wrap_class(wrap_class(keras.optimizers.SGD)) is wrap_class(keras.optimizers.SGD)
    optimizer = keras.optimizers.SGD(1.0)
    optimizer.__class__ = wrap_class(type(optimizer))
    assert reduces(optimizer, rank, size)


def test_checkpoint_of_tensorflow(hvd, rank, size, tmp_path):
    model = trained_model(hvk.DistributedOptimizer(keras.optimizers.Adam(0.01)), rank, size)
    path = tf.train.Checkpoint(optimizer=model.optimizer).write(str(tmp_path / "checkpoint"))
    assert not [name for name, _ in tf.train.list_variables(path) if "smddp" in name]
    other = keras.optimizers.Adam(0.5)
    other.build(model.trainable_variables)
    tf.train.Checkpoint(optimizer=other).read(path).assert_existing_objects_matched()
    for mine, theirs in zip(state_of(model.optimizer), state_of(other)):
        np.testing.assert_array_equal(mine, theirs)
