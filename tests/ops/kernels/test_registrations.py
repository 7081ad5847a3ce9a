"""A graph with our operations, read in a process that has not used them: `dp freeze` of DeePMD-kit does this."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.mpirun import launch

pytestmark = [pytest.mark.launches, pytest.mark.one_process]

WRITE = """
import sys, tensorflow as tf, smddp_tf as hvd
v1 = tf.compat.v1
hvd.init()
with tf.Graph().as_default(), v1.Session() as session:
    w = v1.get_variable("w", initializer=[3.0, 4.0], use_resource=False)
    hvd.DistributedOptimizer(v1.train.AdamOptimizer(0.5)).minimize(tf.reduce_sum(w))
    session.run(v1.global_variables_initializer())
    if hvd.rank() == 0:
        v1.train.Saver().save(session, sys.argv[1])
    assert any(node.op == "SmddpAllreduce" for node in session.graph_def.node)
"""
READ = """
import sys, tensorflow as tf, smddp_tf as hvd
v1 = tf.compat.v1
hvd.init()
tf.config.set_logical_device_configuration(  # TensorFlow is not initialized by this
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2)
with tf.Graph().as_default(), v1.Session() as session:
    saver = v1.train.import_meta_graph(sys.argv[1] + ".meta")
    saver.restore(session, sys.argv[1])
    assert list(session.run("w:0")) == [3.0, 4.0]
    session.run("Adam")
    print("after a step:", *session.run("w:0").round(3))
"""


def test_a_graph_is_read_after_init(tmp_path: Path) -> None:
    prefix = tmp_path / "model"
    launch(["-c", WRITE, prefix], ranks=2, timeout=90).check()
    read = launch(["-c", READ, prefix], ranks=None, timeout=90).check()
    assert "after a step: 2.5 3.5" in read.output
