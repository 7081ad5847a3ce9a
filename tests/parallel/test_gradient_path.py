"""The way of a gradient through Python is the one that tools/structure.py prints."""

from __future__ import annotations

import importlib.util
import threading
import weakref
from pathlib import Path

import keras
import pytest
import tensorflow as tf

import smddp_tf.keras as hvk
from smddp_tf.gradients import reduced_once
from smddp_tf.keras.fit.plan import TrainerPlan
from smddp_tf.keras.optimizer import same_batches
from smddp_tf.keras.roles import running

TOOL = Path(__file__).resolve().parents[2] / "tools" / "python_structure.py"


def test_a_gradient_goes_the_way_that_is_listed(hvd, size, monkeypatch):
    if size != 2:
        pytest.skip("the list is of two ranks")
    # No tape has reduced anything, as in other tests of this process.
    monkeypatch.setattr(reduced_once, "_in_graph", weakref.WeakKeyDictionary())
    monkeypatch.setattr(reduced_once, "_eager", threading.local())
    spec = importlib.util.spec_from_file_location("python_structure", TOOL)
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    optimizer, weights, stops = hvk.DistributedOptimizer(keras.optimizers.SGD(0.1)), tf.Variable(tf.ones([100])), []
    optimizer.build([weights])

    @tf.function
    def step(gradient):
        stops.append(tool.stops_of(lambda: optimizer.apply([gradient], [weights])))

    with running.within(plans=(TrainerPlan(None, {}, is_guarded=True),)):
        same_batches.note([tf.ones([1])])  # makes its variable, so that TensorFlow traces the step once
        step(tf.ones([100]))
    assert stops == [tool.STOPS]
