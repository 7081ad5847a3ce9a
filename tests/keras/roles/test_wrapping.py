"""The classes of wrapped optimizers: made once, recognised, taken off again."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import keras
import pytest

from smddp_tf.keras.roles import wrapping


def wrapped_class(optimizer_class: type, settings: tuple[Any, ...] = (1,), attach: Any = None) -> Any:
    return wrapping.wrapped_class(optimizer_class, lambda _: {"__module__": "keras.optimizers"}, settings, attach)


def test_a_class_is_made_once_for_each_settings() -> None:
    made = wrapped_class(keras.optimizers.Lion)
    assert wrapped_class(keras.optimizers.Lion) is made
    assert wrapped_class(made) is made
    assert wrapped_class(keras.optimizers.Lion, (2,)) is not made
    assert (made.__name__, made.__module__) == ("Lion", "keras.optimizers")
    assert wrapping.unwrapped(made) is keras.optimizers.Lion
    assert wrapping.unwrapped(keras.optimizers.Lion) is keras.optimizers.Lion


def test_an_object_is_wrapped_and_unwrapped_with_its_state() -> None:
    optimizer = keras.optimizers.SGD(0.25, momentum=0.5)
    optimizer.build([keras.Variable([1.0])])
    variables = list(optimizer.variables)
    reducer = SimpleNamespace(is_inherited=False)
    wrapping.attach_reducer(optimizer, wrapped_class(keras.optimizers.SGD), reducer)
    assert wrapping.is_wrapped(optimizer)
    assert wrapping.reducer_of(optimizer) is reducer
    assert wrapping.settings_of_class(optimizer) == (1,)
    assert wrapping.reduces(keras.optimizers.LossScaleOptimizer(optimizer))
    with pytest.raises(ValueError, match="not wrapped yet"):
        wrapping.refuse_wrapped(optimizer)
    reducer.is_inherited = True
    wrapping.refuse_wrapped(optimizer)
    wrapping.detach_reducer(optimizer)
    assert type(optimizer) is keras.optimizers.SGD
    assert wrapping.reducer_on(optimizer) is None
    assert not wrapping.reduces(optimizer)
    assert [id(each) for each in optimizer.variables] == [id(each) for each in variables]


def test_one_that_keras_has_made_gets_its_reducer_when_it_is_asked_for() -> None:
    optimizer = wrapped_class(keras.optimizers.Adagrad, (3,), lambda optimizer: ("made for", id(optimizer)))(0.1)
    assert wrapping.reducer_on(optimizer) is None
    assert wrapping.reducer_of(optimizer) == ("made for", id(optimizer))


def test_optimizers_of_a_model_that_has_several() -> None:
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    compiled, listed, named = (keras.optimizers.SGD() for _ in range(3))
    model.compile(compiled)
    model.others, model.by_name = [listed], {"critic": named}
    found = wrapping.optimizers_of(model)
    assert found[0] is compiled
    assert {id(each) for each in found} == {id(compiled), id(listed), id(named)}
    assert not wrapping.model_reduces(model)
    reducer = SimpleNamespace(settings=SimpleNamespace(process_set=SimpleNamespace(process_set_id=0)))
    wrapping.attach_reducer(named, wrapped_class(keras.optimizers.SGD), reducer)
    assert wrapping.model_reduces(model)
    reducer.settings.process_set.process_set_id = 2  # of some ranks only
    assert not wrapping.model_reduces(model)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("adam", r"keras.optimizers.get\('adam'\)"),
        (keras.optimizers.Adam, r"Pass an instance: `hvd.DistributedOptimizer\(Adam\(...\)\)`"),
        (3, r"Make one, for example `hvd.DistributedOptimizer\(keras.optimizers.Adam\(\)\)`"),
    ],
)
def test_advice_for_what_is_no_optimizer(given: object, words: str) -> None:
    import re

    assert re.search(words, wrapping.advice(given, "keras.optimizers", keras.optimizers.Optimizer))
