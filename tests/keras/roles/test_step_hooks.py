"""Our steps around a model's own: put in, taken off, and what was traced is kept for the next time."""

from __future__ import annotations

import keras
import numpy as np
import pytest

from smddp_tf.keras.roles.step_hooks import StepKind, hooks_of


@pytest.fixture
def model() -> keras.Model:
    made = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, kernel_initializer="ones")])
    made.compile("sgd", "mse")
    return made


def train(model: keras.Model, rows: int) -> None:
    model.train_on_batch(np.ones((rows, 2), np.float32), np.ones((rows, 1), np.float32))


def test_a_model_has_one_of_each_kind_and_saves_none(model: keras.Model) -> None:
    assert hooks_of(model, "train") is hooks_of(model, "train")
    assert hooks_of(model, "train") is not hooks_of(model, "test")
    assert all("step_hooks" not in name for name in model.get_config())


def test_samples_are_counted_while_the_step_is_ours(model: keras.Model) -> None:
    hooks = hooks_of(model, "train")
    plain = type(model).train_step
    train(model, 4)
    function = model.train_function
    with hooks.installed_in(model, StepKind()):
        assert model.train_step is not plain
        for rows in (3, 5):
            train(model, rows)
        with hooks.installed_in(model, StepKind()):
            train(model, 2)
        assert hooks.installed
        traced = model.train_function
    assert float(hooks.samples) == 10
    assert not hooks.installed
    assert "train_step" not in vars(model)
    assert model.train_function is function
    with hooks.installed_in(model, StepKind()):
        assert model.train_function is traced  # not traced again
    with hooks.installed_in(model, StepKind(is_global=True)):
        assert model.train_function is not traced  # of another kind
    hooks.reset()
    assert float(hooks.samples) == 0


def test_what_stands_in_for_a_function_is_taken_off_unless_another_came(model: keras.Model) -> None:
    hooks = hooks_of(model, "train")
    model.train_function = plain = lambda iterator: "plain"
    ours, theirs = (lambda iterator: "ours"), (lambda iterator: "theirs")
    function = hooks.intercept(model, ours)
    assert (function, model.train_function) == (plain, ours)
    assert hooks.intercept(model, ours, function) is plain
    hooks.release(model, ours, function)
    assert model.train_function is plain
    hooks.intercept(model, ours)
    model.train_function = theirs
    hooks.release(model, ours, plain)
    assert model.train_function is theirs
