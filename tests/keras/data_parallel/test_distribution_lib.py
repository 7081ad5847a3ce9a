"""`keras.distribution` around the training itself: devices and layouts, callbacks, precision, and what it refuses."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.support.distributed_keras import BATCH, FEATURES, distributed, model, samples, weights

pytestmark = pytest.mark.ranks("2")


def test_devices_and_layouts(hvd, rank, size):
    """The example of Keras's documentation."""
    with distributed() as distribution:
        devices = keras.distribution.list_devices()
        assert devices == [f"cpu:{number}" for number in range(size)]
        assert keras.distribution.list_devices("gpu") == []
        mesh = keras.distribution.DeviceMesh(shape=(size,), axis_names=["data"], devices=devices)
        data_parallel = keras.distribution.DataParallel(device_mesh=mesh)
        assert data_parallel.device_mesh.devices.size == size
        layout = distribution.get_data_layout((4, 2))
        value = tf.constant([[1.0, rank]])
        assert keras.distribution.distribute_tensor(value, layout) is value
        assert keras.distribution.distribution() is distribution
        wrong = keras.distribution.TensorLayout([None, "batch"], distribution.device_mesh)
        with pytest.raises(NotImplementedError, match="data parallelism only"):
            keras.distribution.distribute_tensor(value, wrong)


def test_all_ranks_have_one_seed(hvd, rank, mpi):
    keras.utils.set_random_seed(100 + rank)
    if rank > 0:
        keras.distribution.initialize()
    else:
        with pytest.warns(UserWarning, match="different random seeds") if mpi.size > 1 else _nothing():
            keras.distribution.initialize()
    drawn = np.asarray(keras.random.normal((4,)))
    assert all(np.array_equal(theirs, drawn) for theirs in mpi.allgather(drawn))


class _nothing:
    def __enter__(self) -> None:
        return None

    def __exit__(self, *error: object) -> None:
        return None


def test_callbacks_decide_alike_and_write_once(hvd, rank, mpi, tmp_path):
    x, y = samples()
    folder = tmp_path / f"of-{rank}"
    folder.mkdir()
    bound: list[float] = []
    callbacks = [
        keras.callbacks.ModelCheckpoint(folder / "m.keras", monitor="val_AUC", mode="max"),
        keras.callbacks.CSVLogger(folder / "log.csv"),
        keras.callbacks.ReduceLROnPlateau("val_loss", patience=1, min_delta=10.0, factor=0.5),
        keras.callbacks.EarlyStopping("val_loss", patience=3, min_delta=10.0),
        keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: bound.append(logs["val_loss"])),
    ]
    with distributed():
        net = model("sgd")
        # Weights that differ: rank 0's are taken.
        net.set_weights([value + rank for value in net.get_weights()])
        history = net.fit(
            x, y, batch_size=BATCH, epochs=9, verbose=0, validation_data=(x[:9], y[:9]), callbacks=callbacks
        ).history
    assert len(history["loss"]) == 4  # stopped early
    assert bound == history["val_loss"]
    assert all(theirs == history for theirs in mpi.allgather(history))
    everybody = mpi.allgather(weights(net))
    assert all(np.array_equal(theirs, everybody[0]) for theirs in everybody)
    files = sorted(file.name for file in folder.iterdir())
    assert files == (["log.csv", "m.keras"] if rank == 0 else [])
    if rank == 0:
        assert not getattr(type(keras.models.load_model(folder / "m.keras").optimizer), "_smddp_wraps", None)


def test_scaled_losses(hvd, mpi):
    """A `LossScaleOptimizer` that Keras puts around an optimizer nobody has wrapped."""
    x, y = samples()
    keras.config.set_dtype_policy("mixed_float16")
    try:
        with distributed():
            net = model(keras.optimizers.SGD(0.1))
            net.fit(x, y, batch_size=BATCH, epochs=2, verbose=0)
            net.train_on_batch(x[:4], y[:4])
    finally:
        keras.config.set_dtype_policy("float32")
    assert isinstance(net.optimizer, keras.optimizers.LossScaleOptimizer)
    assert int(net.optimizer.inner_optimizer.iterations.numpy()) > 0
    everybody = mpi.allgather(weights(net))
    assert all(np.array_equal(theirs, everybody[0]) for theirs in everybody)


def test_dropout_differs_between_ranks(hvd, mpi, size):
    ones = np.ones((size * 8, 64), np.float32)
    masks = []

    class Recording(keras.layers.Layer):
        def call(self, x):
            if tf.executing_eagerly() and isinstance(x, tf.Tensor):
                masks.append(x.numpy())
            return x

    with distributed():
        keras.utils.set_random_seed(1)
        net = keras.Sequential([keras.Input((64,)), keras.layers.Dropout(0.5), Recording(), keras.layers.Dense(1)])
        net.compile("sgd", "mse", run_eagerly=True)
        masks.clear()
        net.fit(ones, ones[:, :1], batch_size=size * 8, verbose=0)
    assert len({mask.tobytes() for mask in mpi.allgather(masks[-1])}) == size


def test_what_is_refused(hvd, rank, size):
    x, y = samples()
    with pytest.raises(ValueError, match=f"the job has {size} processes"):
        keras.distribution.initialize(num_processes=size + 1)
    if size == 1:
        return  # nothing is cut
    with distributed():
        net = model("sgd")
        with pytest.raises(ValueError, match="single samples"):
            net.fit(tf.data.Dataset.from_tensor_slices(x[:, 0]), verbose=0)
        with pytest.raises(ValueError, match="samples=70 on rank 0"):
            net.fit(x[rank:], y[rank:], verbose=0)
    with pytest.raises(ValueError, match="one device for each"), distributed(devices=["cpu:0"]):
        net.fit(x, y, verbose=0)


def test_optimizer_with_an_apply_of_its_own(hvd, size):
    class Own(keras.optimizers.SGD):
        def apply(self, grads, trainable_variables=None):
            super().apply(grads, trainable_variables)

    x, y = samples()
    with distributed():
        net = model(Own(0.1))
        if size > 1:
            with pytest.raises(ValueError, match="has an `apply` of its own"):
                net.train_on_batch(x, y)
        net = model(Own(0.1))
        assert "loss" in net.fit(x, y, verbose=0).history
    assert net.input_shape == (None, FEATURES)
