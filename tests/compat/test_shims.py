"""smddp_tf.compat: what older scripts write works on Keras 3, and nothing else changes."""

from __future__ import annotations

import copy
import inspect
import linecache
import pickle
import warnings
from collections.abc import Iterator

import keras
import numpy as np
import pytest
import tensorflow as tf

import smddp_tf.keras as hvk
from smddp_tf import compat
from smddp_tf.compat import shims
from tests.support.keras_training import ROWS_PER_RANK, dense_data, dense_model, distance, flat_weights, part_of

pytestmark = pytest.mark.ranks("2")

RATE = 0.25


@pytest.fixture(autouse=True)
def _nothing_said_yet(hvd) -> Iterator[None]:
    """Every test hears each warning anew, and fails at one that it does not expect."""
    shims.once.cache_clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error", FutureWarning)
        yield


def warned_once(rank: int, action, modern: str):
    """Runs `action` twice; rank 0 hears one warning that names the modern form, the others hear none."""
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        result = action()
        action()
    ours = [warning for warning in heard if "smddp_tf" in str(warning.message)]
    assert len(ours) == (rank == 0)
    if ours:
        assert modern in str(ours[0].message)
        assert ours[0].filename == __file__
    return result


def number(variable) -> float:
    return float(variable.numpy())  # Keras 3.3 has no `float(variable)`


def test_variables_may_be_called(rank):
    optimizer = hvk.DistributedOptimizer(keras.optimizers.Adam(RATE))
    optimizer.build([keras.Variable([1.0, 2.0])])
    called = warned_once(rank, lambda: optimizer.variables(), "optimizer.variables")
    assert type(called) is list
    assert [id(variable) for variable in called] == [id(variable) for variable in optimizer.variables]


def test_in_a_function_the_line_is_the_users(rank):
    """Not the one of TensorFlow that calls the branch, nor one of what AutoGraph made of this function."""
    optimizer = hvk.DistributedOptimizer(keras.optimizers.Adam(RATE))
    optimizer.build([keras.Variable([1.0, 2.0])])

    @tf.function
    def step(first):
        if first:
            count = len(optimizer.variables())
        else:
            count = 0
        return tf.constant(count)

    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        step(True)
    ours = [warning for warning in heard if "smddp_tf" in str(warning.message)]
    assert len(ours) == (rank == 0)
    for warning in ours:
        assert warning.filename == __file__
        assert linecache.getline(__file__, warning.lineno).strip() == "count = len(optimizer.variables())"


@pytest.mark.parametrize("wrap", [lambda o: o, keras.optimizers.LossScaleOptimizer])
def test_variables_are_still_a_list(wrap):
    optimizer = wrap(keras.optimizers.SGD(RATE, momentum=0.9))
    optimizer.build([keras.Variable([1.0, 2.0])])
    variables = optimizer.variables
    assert isinstance(variables, list)
    assert len(variables) == len(list(variables)) > 2
    assert callable(variables)
    assert type(copy.copy(variables)) is list
    assert type(variables[:]) is list
    assert pickle.loads(pickle.dumps(type(variables)([1, 2]))) == [1, 2]
    assert b"smddp" not in pickle.dumps(type(variables)([1, 2]))
    assert len(tf.nest.flatten(variables)) == len(variables)


def test_variables_of_an_optimizer_that_is_not_wrapped_can_be_broadcast(hvd, rank, mpi):
    """The line of nearly every Horovod script with a loop of its own."""
    optimizer = tf.keras.optimizers.SGD(RATE, momentum=0.9)
    optimizer.build([keras.Variable([float(rank)] * 3)])
    optimizer.iterations.assign(rank + 5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        hvd.broadcast_variables(optimizer.variables(), root_rank=0)
    assert mpi.allgather(int(optimizer.iterations.numpy())) == [5] * mpi.Get_size()


def test_lr_is_the_learning_rate(rank):
    optimizer = hvk.DistributedOptimizer(keras.optimizers.SGD(RATE))
    assert number(warned_once(rank, lambda: optimizer.lr, "optimizer.learning_rate")) == RATE
    shims.once.cache_clear()
    warned_once(rank, lambda: setattr(optimizer, "lr", 0.5), "optimizer.learning_rate")
    assert number(optimizer.learning_rate) == 0.5
    assert "lr" not in vars(optimizer)
    scaled = keras.optimizers.LossScaleOptimizer(optimizer)
    scaled.lr = 0.75
    assert number(optimizer.learning_rate) == number(scaled.lr) == 0.75


def test_other_attributes_are_as_missing_as_before():
    optimizer = keras.optimizers.SGD(RATE)
    assert not hasattr(optimizer, "lr_")
    with pytest.raises(AttributeError, match="'SGD' object has no attribute 'velocity'"):
        optimizer.velocity  # noqa: B018
    optimizer.note = "mine"
    assert optimizer.note == "mine"
    assert "lr" not in dir(optimizer)


def test_a_class_of_the_user_keeps_its_own_lr():
    class Own(keras.optimizers.SGD):
        def __init__(self, lr, **kwargs):
            super().__init__(learning_rate=lr, **kwargs)
            self.lr = "mine"

    optimizer = hvk.DistributedOptimizer(Own(lr=RATE))
    assert optimizer.lr == "mine"
    assert number(optimizer.learning_rate) == RATE


OPTIMIZERS_WITH_LR = ["SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "Adadelta", "Adamax", "Nadam", "Ftrl", "Adafactor"]


@pytest.mark.parametrize("name", OPTIMIZERS_WITH_LR)
def test_lr_as_an_argument(rank, name):
    make = getattr(keras.optimizers, name)
    old = warned_once(rank, lambda: make(lr=RATE, clipnorm=1.0), f"{name}(learning_rate=")
    new = make(learning_rate=RATE, clipnorm=1.0)
    assert old.get_config() == {**new.get_config(), "name": old.name}
    assert next(iter(inspect.signature(make).parameters)) == "learning_rate"


@pytest.mark.parametrize("arguments", [((0.1,), {}), ((), {"learning_rate": 0.1})])
def test_lr_and_learning_rate_together_are_keras_own_error(arguments):
    with pytest.raises(ValueError, match="Argument.s. not recognized: .*lr"):
        keras.optimizers.Adam(*arguments[0], lr=RATE, **arguments[1])


def test_decay_names_the_schedule(rank):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Argument `decay` is no longer supported")
        optimizer = warned_once(rank, lambda: keras.optimizers.SGD(0.1, decay=0.01), "InverseTimeDecay(rate, decay_ste")
    assert "decay" not in optimizer.get_config()


def test_compile_takes_the_old_argument(rank):
    model = dense_model()
    old = warned_once(
        rank,
        lambda: model.compile(keras.optimizers.SGD(name="same"), "mse", experimental_run_tf_function=False),
        "compile(...) without it",
    )
    assert old is None
    plain = dense_model()
    plain.compile(keras.optimizers.SGD(name="same"), "mse")
    assert model.get_compile_config() == plain.get_compile_config()
    assert "optimizer" in inspect.signature(model.compile).parameters
    with pytest.raises(TypeError, match="experimental_run"):
        model.compile("sgd", "mse", experimental_run=True)


def test_an_older_script_trains_like_a_modern_one(hvd, rank, size):
    x, y = (part_of(array, rank, size) for array in dense_data(size, 6))
    models = []
    for old in (True, False):
        model = dense_model()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            optimizer = keras.optimizers.SGD(lr=0.1, momentum=0.9) if old else keras.optimizers.SGD(0.1, momentum=0.9)
            more = {"experimental_run_tf_function": False} if old else {}
            model.compile(hvk.DistributedOptimizer(optimizer), loss="mse", **more)
        model.fit(x, y, batch_size=ROWS_PER_RANK, shuffle=False, verbose=0)
        models.append(model)
    assert distance(flat_weights(models[0]), flat_weights(models[1])) == 0.0


def test_shims_can_be_taken_out_and_put_back():
    touched = (keras.optimizers.Optimizer, keras.optimizers.Adam, keras.optimizers.LossScaleOptimizer)
    with_shims = [dict(vars(owner)) for owner in touched]
    try:
        compat.uninstall()
        without = [dict(vars(owner)) for owner in touched]
        assert not callable(keras.optimizers.SGD(RATE).variables)
        assert not hasattr(keras.optimizers.SGD(RATE), "lr")
        with pytest.raises(ValueError, match="not recognized"):
            keras.optimizers.Adam(lr=RATE)
        with pytest.raises(TypeError):
            dense_model().compile("sgd", experimental_run_tf_function=False)
        modules = {getattr(v, "__module__", "") for each in without for v in each.values()}
        assert not [module for module in modules if module.startswith("smddp_tf.compat")]
    finally:
        compat.install()
    assert [each.keys() for each in with_shims] == [dict(vars(owner)).keys() for owner in touched]
    assert callable(keras.optimizers.SGD(RATE).variables)


def test_nothing_is_said_to_a_modern_script(hvd, rank, size, tmp_path):
    """The fixture makes every warning of ours an error."""
    x, y = (part_of(array, rank, size) for array in dense_data(size, 2))
    model = dense_model()
    model.compile(hvk.DistributedOptimizer(keras.optimizers.Adam(0.01)), loss="mse")
    callbacks = [hvk.callbacks.BroadcastGlobalVariablesCallback(0), hvk.callbacks.LearningRateWarmupCallback(0.1)]
    model.fit(x, y, batch_size=ROWS_PER_RANK, verbose=0, callbacks=callbacks)
    model.save(tmp_path / "model.keras")
    keras.models.load_model(tmp_path / "model.keras")
    pickle.loads(pickle.dumps(model))
    tf.saved_model.save(model, str(tmp_path / "saved"))
    assert shims.once.cache_info().currsize == 0
    assert np.isfinite(flat_weights(model)).all()


def test_an_optimizer_of_tensorflow_1_applies_what_the_tape_has_reduced(hvd, rank, size):
    """As it does without a tape around it: `hvd.DistributedOptimizer` wraps it. The one of Keras says so."""
    optimizer = tf.compat.v1.train.MomentumOptimizer(0.5, momentum=0.9)
    variable = tf.Variable([1.0, 2.0])

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(variable * float(rank + 1))
        grads = hvd.DistributedGradientTape(tape).gradient(loss, [variable])
        optimizer.apply_gradients(zip(grads, [variable]))

    step()
    step()
    mean = (size + 1) / 2
    np.testing.assert_allclose(variable.numpy(), np.array([1.0, 2.0]) - 0.5 * (1 + 1.9) * mean, rtol=1e-6)
    assert isinstance(hvd.DistributedOptimizer(optimizer), tf.compat.v1.train.Optimizer)
    with pytest.raises(ValueError, match="wrapped by `smddp_tf.DistributedOptimizer`"):
        hvk.DistributedOptimizer(optimizer)
