"""Tests of the GPU path, on a GPU in host memory (tests/fake_gpu): run by `make test-gpu`.

In a process of their own, because a process looks for its GPUs once. With FAKE_GPU_INTERFACE=cuda on CUDA's functions
in host memory, below the adapter to CUDA itself (tests/fake_cuda).
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator

import pytest

from tests import fake_cuda, fake_gpu
from tests.fake_gpu.gpu import call, left_clean

ON_CUDA = os.environ.get("FAKE_GPU_INTERFACE") == "cuda"
if ON_CUDA and fake_cuda.why_not():
    pytest.exit(f"the GPU path was not run on the fake CUDA, which needs cuda.h: {fake_cuda.why_not()}", returncode=0)
# What another interface does not change, and what is about this one.
of_other_parts = ("cuda_moves", "gpu_check", "method_agreement", "nccl_errors", "nccl_library", "nccl_processes")
collect_ignore = [f"test_{part}.py" for part in of_other_parts] if ON_CUDA else []
collect_ignore += [] if ON_CUDA else ["test_cuda_adapter.py"]

os.environ["SMDDP_GPU_LIBRARY"] = str(fake_gpu.build())
os.environ["SMDDP_NCCL_LIBRARY"] = str(fake_gpu.build_nccl())
os.environ.setdefault("FAKE_GPU_DEVICES", "4")
os.environ.setdefault("FAKE_GPU_DELAY_US", "200")


@pytest.fixture(scope="module")
def kernels() -> ctypes.CDLL:
    """The GPU's kernels, compiled for the processor."""
    library = ctypes.CDLL(str(fake_gpu.build()))
    library.kernels_error.restype = ctypes.c_char_p
    library.kernels_quads.restype = ctypes.c_uint64
    return library


@pytest.fixture(scope="module")
def nccl() -> int:
    return call("load_groups", str(fake_gpu.build_nccl()).encode())


@pytest.fixture
def nccl_gpus() -> Iterator[None]:
    """Four devices, work that comes late, and nothing left behind."""
    with left_clean(("allocations", "imports", "streams", "communicators"), DEVICES="4", DELAY_US="300"):
        yield
