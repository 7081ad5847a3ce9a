"""The table of changes to Keras's classes: complete, and what happens where Keras is different."""

from __future__ import annotations

import functools
import warnings

import pytest

from smddp_tf.keras import patch_table, patches

pytestmark = pytest.mark.ranks("2")


class Plain:
    def method(self, grads):
        return grads

    @property
    def value(self):
        return 1

    @classmethod
    def make(cls, config):
        return config


def row(name, owner, is_needed, **changed):
    return patch_table.Patch(f"Plain.{name}", "of a reason", "it does not work", is_needed, lambda: [owner], **changed)


CHANGED = {
    "gone": ({"name": "gone"}, "Plain.gone does not exist"),
    "parameter": ({"name": "method", "parameters": ("self", "variables")}, "no parameter 'variables'"),
    "no function": ({"name": "value"}, "value is not a function"),
    "no property": ({"name": "method", "kind": "property"}, "Plain.method is not a property"),
    "no class method": ({"name": "method", "kind": "classmethod"}, "Plain.method is not a class method"),
    "not new": ({"name": "method", "kind": "new"}, "Plain.method exists"),
}


@pytest.mark.parametrize("case", CHANGED)
@pytest.mark.parametrize("is_needed", [True, False])
def test_a_changed_keras_is_told(hvd, case, is_needed):
    changed, found = CHANGED[case]
    before = dict(vars(Plain))
    patch = row(owner=Plain, is_needed=is_needed, **changed)
    said = f"smddp_tf replaces `Plain.*because of a reason.*{found}.*it does not work.*Seen to work: Keras 3"
    with pytest.raises(RuntimeError, match=said) if is_needed else pytest.warns(RuntimeWarning, match=said):
        assert not patches.replace(patch, lambda plain: pytest.fail("the replacement was made"))
    assert dict(vars(Plain)) == before


@pytest.mark.parametrize("problem", [ImportError, AttributeError, StopIteration])
def test_a_class_that_is_not_found_is_told(hvd, problem):
    def missing():
        raise problem("it has moved")

    patch = row("method", Plain, True)._replace(owners=missing)
    with pytest.raises(RuntimeError, match="it has moved"):
        patches.replace(patch, lambda plain: plain)


def test_an_attribute_that_is_no_longer_set_is_told(hvd, monkeypatch):
    monkeypatch.setattr(Plain.method, "__module__", "keras.src.something")
    patch = row("method", Plain, True, sets=("_distributed_dataset",))
    with pytest.raises(RuntimeError, match="method does not set _distributed_dataset"):
        patches.replace(patch, lambda plain: plain)


def doubling(plain):
    @functools.wraps(plain)
    def method(self, *args):
        return 2 * plain(self, *args)

    return method


def test_a_replacement_is_made_once_and_taken_back(hvd):
    class Owner(Plain):
        pass

    patch = row("method", Owner, True, parameters=("self", "grads"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert patches.replace(patch, doubling)
        assert patches.replace(patch, doubling)
    assert Owner().method(1) == 2
    patches.restore([patch])
    assert "method" not in vars(Owner)
    assert Owner().method(1) == 1


def test_the_wrapper_of_another_library_is_replaced_and_kept(hvd):
    class Owner(Plain):
        def method(self, *args, **kwargs):
            return 10 * super().method(*args, **kwargs)

    patch = row("method", Owner, True, parameters=("self", "grads"))
    patches.replace(patch, doubling)
    assert Owner().method(1) == 20
    theirs = Owner.method = lambda self, grads: -grads
    patches.restore([patch])
    assert Owner.method is theirs


def test_a_wrapper_gets_the_function_and_the_arguments(hvd):
    class Owner(Plain):
        pass

    method, value = row("method", Owner, True), row("value", Owner, True, kind="property")
    absent = row("absent", Owner, True, kind="new")
    for patch in (method, value, absent):
        assert patches.wrap(patch, lambda plain, self, *args, **kwargs: (plain, type(self), args, kwargs))
    plain, *called = Owner().method(3, grads=4)
    assert (plain, called) == (Plain.method, [Owner, (3,), {"grads": 4}])
    assert Owner.method.__wrapped__ is Plain.method
    assert Owner().value[0] is Plain.value.fget
    assert Owner().absent(5) == (None, Owner, (5,), {})
    patches.restore([method, value, absent])
    assert (Owner().method(1), Owner().value, hasattr(Owner, "absent")) == (1, 1, False)


class Trainer:
    def make_train_function(self): ...

    def fit(self, x): ...


def test_a_fit_that_is_different_is_an_error(hvd, monkeypatch):
    monkeypatch.setattr(patches, "FIT", patch_table.FIT._replace(owners=lambda: [Trainer]))
    with pytest.raises(RuntimeError, match=r"`keras.Model.fit`, because .*fit has no parameter 'epochs'"):
        patches.take_over_fit(lambda plain: plain)
    assert not hasattr(Trainer, "_smddp_fit")
