"""Traces a step of a wrapped optimizer, as in a guarded `fit`; prints where its gradient passes, and the list, as JSON.

python gradient_path.py FILE, that of tools/python_structure.py
"""

from __future__ import annotations

import importlib.util
import json
import sys

import keras
import tensorflow as tf

import smddp_tf.keras as hvd
from smddp_tf.keras.fit.plan import TrainerPlan
from smddp_tf.keras.optimizer import same_batches
from smddp_tf.keras.roles import running


def main() -> None:
    spec = importlib.util.spec_from_file_location("python_structure", sys.argv[1])
    assert spec is not None
    assert spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    hvd.init()
    optimizer, weights, traces = hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), tf.Variable(tf.ones([100])), []
    optimizer.build([weights])

    @tf.function
    def step(gradient: tf.Tensor) -> None:
        traces.append(tool.stops_of(lambda: optimizer.apply([gradient], [weights])))

    with running.within(plans=(TrainerPlan(None, {}, is_guarded=True),)):
        same_batches.note([tf.ones([1])])  # makes its variable, so that TensorFlow traces the step once
        step(tf.ones([100]))
    print(f"rank {hvd.rank()}: {json.dumps([traces, tool.STOPS])}", flush=True)
    hvd.shutdown()


main()
