"""The kernels for GPUs, as far as a machine without one can tell: registered, and harmless."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework import kernels

import smddp_tf
from smddp_tf._native import loader

pytestmark = pytest.mark.ranks("2")

# Of each op: what its kernel for GPUs asks for in host memory.
ON_HOST = {
    "SmddpReduceGradient": set(),
    "SmddpReducePart": {"gradient", "reduced"},
    "SmddpGatherPart": {"gradient", "reduced"},
    "SmddpAllreduce": set(),
    "SmddpReducescatter": set(),
    "SmddpBroadcast": {"tensors", "received"},
    "SmddpAllgather": {"tensors", "gathered"},
    "SmddpAlltoall": {"tensor", "splits", "received", "received_splits"},
    "SmddpBarrier": set(),
    "SmddpJoin": {"last"},
    "SmddpTopologyValue": {"value"},
    "SmddpCompiledCollective": {"tensors", "after", "results", "token"},
}


def test_every_op_has_a_kernel_for_gpus(hvd):
    on_cpu = {"SmddpRunBegins"}  # without tensors, and added to graphs whatever their device
    assert {name for name in dir(loader.op_library()) if name.startswith("Smddp")} == set(ON_HOST) | on_cpu
    for op, on_host in ON_HOST.items():
        of_op = {kernel.device_type: kernel for kernel in kernels.get_registered_kernels_for_op(op).kernel}
        assert {"CPU", "GPU"} <= set(of_op)
        assert set(of_op["GPU"].host_memory_arg) == on_host, op
        assert not of_op["CPU"].host_memory_arg


def test_a_wish_for_a_gpu_that_is_not_there(hvd, rank, size):
    """Soft placement, as Keras has it: the op goes to the CPU."""
    if tf.config.list_physical_devices("GPU"):
        pytest.skip("there is a GPU")
    was = tf.config.get_soft_device_placement()
    tf.config.set_soft_device_placement(True)
    try:
        with tf.device("/GPU:0"):
            got = tf.function(lambda x: (hvd.allreduce(x, op=hvd.Sum), hvd.allgather(x)))(tf.constant([1.0 + rank]))
    finally:
        tf.config.set_soft_device_placement(was)
    np.testing.assert_array_equal(got[0], [size * (size + 1) / 2])
    np.testing.assert_array_equal(got[1], 1.0 + np.arange(size))


def test_what_the_build_says_of_gpus_agrees_with_itself(hvd):
    info = loader.core().build_info()
    assert smddp_tf.cuda_built() == info["cuda"] == bool(info["cuda_platform"])
    assert bool(info["gpus"]) != bool(info["why_no_gpu"])
    assert bool(info["nccl_version"]) != bool(info["why_no_nccl"])
    assert smddp_tf.nccl_built() == info["nccl_version"]
