"""Our custom call for CUDA, called by XLA's FFI. The libraries come from FAKE_XLA_CALL and SMDDP_GPU_LIBRARY."""

from __future__ import annotations

import ctypes
import os

import numpy as np

import smddp_tf as hvd
from smddp_tf._native import loader

SIZES = (5, 0, 400_000, 17, 3)
POINTER = ctypes.c_void_p

hvd.init()
rank, size = hvd.rank(), hvd.size()
loader.xla_library()
core = loader.core()
hvd.nccl_built()  # the fake GPU gets its NCCL from who loads it first, which must be the engine
gpu = ctypes.CDLL(os.environ["SMDDP_GPU_LIBRARY"])
gpu.fake_gpu_allocate.restype = gpu.fake_gpu_make_stream.restype = POINTER
gpu.fake_gpu_write.argtypes = gpu.fake_gpu_read.argtypes = [POINTER, POINTER, ctypes.c_size_t]
gpu.fake_gpu_synchronize.argtypes = [ctypes.c_int, POINTER, ctypes.c_double]
xla_call = ctypes.CDLL(os.environ["FAKE_XLA_CALL"]).xla_call
xla_call.restype = ctypes.c_char_p
stream = gpu.fake_gpu_make_stream(0)


def numbers(of_rank):
    return [np.random.default_rng(7 * of_rank + i).integers(-9, 9, n).astype(np.float32) for i, n in enumerate(SIZES)]


def call(name, plan=None):
    """The error, and the results."""
    arrays = numbers(rank)
    memory = [gpu.fake_gpu_allocate(0, max(1, array.nbytes)) for array in arrays]
    for address, array in zip(memory, arrays):
        gpu.fake_gpu_write(address, array.ctypes.data, array.nbytes) if array.nbytes else None
    elements = (ctypes.c_int64 * len(arrays))(*SIZES)
    addresses = (POINTER * len(arrays))(*memory)
    token = POINTER(gpu.fake_gpu_allocate(0, 4))
    planned = (int(plan is not None), name.encode(), plan or 0)
    error = xla_call(*planned, len(arrays), elements, addresses, token, POINTER(stream)).decode()
    assert gpu.fake_gpu_synchronize(0, stream, 60.0) == 1
    for address, array in zip(memory, arrays):
        gpu.fake_gpu_read(array.ctypes.data, address, array.nbytes) if array.nbytes else None
    return error, arrays


expected = [sum(of_tensor) for of_tensor in zip(*(numbers(other) for other in range(size)))]
plan = core.register_plan("xla", ["float32"] * len(SIZES), [[n] for n in SIZES], 1, 1.0, 1.0, "", [], 0, [])
for wanted in (None, plan, plan, plan):
    error, results = call("named" if wanted is None else "xla", wanted)
    assert error == "", error
    for result, sums in zip(results, expected):
        np.testing.assert_array_equal(result, sums)
hvd.shutdown()
error, results = call("named")
assert "has not been initialized" in error, error
for result, array in zip(results, numbers(rank)):
    np.testing.assert_array_equal(result, array)
print(f"rank {rank} is through")
