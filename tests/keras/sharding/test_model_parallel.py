"""`keras.distribution.ModelParallel`: weights are stored by the layout map, and trained as by `DataParallel`."""

from __future__ import annotations

import keras
import numpy as np
import pytest

import smddp_tf.keras.distribution  # noqa: F401
from smddp_tf.collectives.layouts import layout_of
from tests.support.distributed_keras import distributed

pytestmark = pytest.mark.ranks("2", "2+2")

ROWS, BATCH = 44, 16  # the last batch has 12 rows


def model_parallel(layout_map):
    """Keras 3.3 wants the mesh as well."""
    return keras.distribution.ModelParallel(
        device_mesh=layout_map.device_mesh, layout_map=layout_map, batch_dim_name="batch"
    )


def image_model():
    """With the names of the example in Keras's documentation."""
    keras.utils.set_random_seed(3)
    inputs = keras.Input((6, 6, 3))
    x = keras.layers.Conv2D(16, 3, activation="tanh", name="conv2d_1")(inputs)
    x = keras.layers.Dense(32, "relu", name="dense_1")(keras.layers.Flatten()(x))
    return keras.Model(inputs, keras.layers.Dense(2, name="dense_2")(x))


def layout_map_of(batch, model):
    devices = keras.distribution.list_devices()
    mesh = keras.distribution.DeviceMesh(shape=(batch, model), axis_names=("batch", "model"), devices=devices)
    layout_map = keras.distribution.LayoutMap(mesh)
    layout_map[".*dense.*kernel"] = (None, "model")
    layout_map[".*dense.*bias"] = ("model",)
    layout_map[".*conv2d.*kernel"] = (None, None, None, "model")
    layout_map[".*conv2d.*bias"] = ("model",)
    layout_map["dense_1/output"] = (None, "model")  # of what the layer returns; changes no value
    return layout_map


def run(path=None):
    random = np.random.default_rng(1)
    x, y = random.normal(size=(ROWS, 6, 6, 3)).astype(np.float32), random.normal(size=(ROWS, 2)).astype(np.float32)
    model = image_model()
    model.compile(keras.optimizers.AdamW(1e-2), loss="mse", metrics=["mae"])
    history = model.fit(x, y, batch_size=BATCH, epochs=2, verbose=0, shuffle=False).history
    if path is not None:
        model.save(path)
    weights = [
        np.asarray(getattr(layer, name)) for layer in model.layers for name in ("kernel", "bias") if layer.weights
    ]
    return (
        model,
        weights,
        [*history["loss"], *history["mae"], *model.evaluate(x, y, verbose=0)],
        model.predict(x, verbose=0),
    )


@pytest.mark.parametrize("shape", ["1 x all", "half x 2"])
def test_training_is_that_of_full_weights(hvd, size, shared_folder, shape):
    batch, parts = (1, size) if shape == "1 x all" else (size // 2, 2)
    with distributed():
        _, expected, numbers, predicted = run()
        keras.distribution.set_distribution(model_parallel(layout_map_of(batch, parts)))
        model, weights, ours, rows = run(shared_folder / "model.keras")
        for one, other in zip(weights, expected):
            np.testing.assert_allclose(one, other, rtol=0, atol=2e-6)
        np.testing.assert_allclose(ours, numbers, rtol=1e-5)
        np.testing.assert_allclose(rows, predicted, rtol=0, atol=1e-5)
        assert [layout_of(variable).parts for variable in model.trainable_variables] == [parts] * 6
    loaded = keras.models.load_model(shared_folder / "model.keras")
    for one, other in zip(loaded.get_weights(), weights):
        np.testing.assert_array_equal(one, other)


def test_weights_without_a_layout_are_full(hvd, size):
    with distributed():
        layout_map = layout_map_of(1, size)
        del layout_map[".*dense.*bias"]
        keras.distribution.set_distribution(model_parallel(layout_map))
        layouts = [layout_of(variable) for variable in image_model().trainable_variables]
        assert [layout is not None for layout in layouts] == [True, True, True, False, True, False]


def test_layouts_that_do_not_fit_are_errors(hvd, size):
    with distributed():
        layout_map = layout_map_of(1, size)
        layout_map[".*other.*kernel"] = ("model",)
        keras.distribution.set_distribution(model_parallel(layout_map))
        with pytest.raises(ValueError, match="A layout needs an axis or None for each dimension"):
            keras.layers.Dense(4, name="other").build((None, 8))
