"""The table of changes to Keras's classes: it fits the Keras that is installed, and it is complete."""

from __future__ import annotations

import importlib
import sys
import types

import keras
import pytest

import smddp_tf.keras as hvk
from smddp_tf import compat
from smddp_tf.keras import patch_table, patches

pytestmark = pytest.mark.ranks("2")


@pytest.fixture
def everything(hvd):
    """All patches: some are applied on import, when an optimizer is wrapped, when a DistributedEmbedding is made."""
    importlib.import_module("smddp_tf.keras.distribution")
    hvk.DistributedOptimizer(keras.optimizers.SGD(0.1))
    table = hvk.layers.TableConfig("table", 3, 2)
    hvk.layers.DistributedEmbedding(hvk.layers.FeatureConfig("feature", table, (None,), (None, 2)))
    compat.install()


def functions_in(attribute):
    """The functions in an attribute of a class."""
    if isinstance(attribute, property):
        return [one for one in (attribute.fget, attribute.fset, attribute.fdel) if one is not None]
    attribute = getattr(attribute, "__func__", attribute)
    return [attribute] if isinstance(attribute, types.FunctionType) else []


def classes_of_keras():
    modules = [module for name, module in list(sys.modules.items()) if name.startswith("keras.")]
    values = [one for module in modules for one in vars(module).values()]
    return {one for one in values if isinstance(one, type) and one.__module__.startswith("keras.")}


def test_every_row_of_the_table_fits_this_keras(everything):
    assert {one.patch for one in patches.applied()} == set(patch_table.PATCHES)


def test_nothing_else_of_keras_is_replaced(everything):
    known = {(one.owner, one.patch.attribute) for one in patches.applied()} | {(trainer(), "_smddp_fit")}
    ours = {
        (owner, name)
        for owner in classes_of_keras()
        for name, attribute in vars(owner).items()
        for function in functions_in(attribute)
        if "/smddp_tf/" in function.__code__.co_filename
    }
    assert len(ours) > 10
    assert ours <= known


def trainer():
    return next(one.owner for one in patches.applied() if one.patch is patch_table.FIT)
