"""Tests of the GPU path, on a GPU in host memory (tests/fake_gpu): run by `make test-gpu`.

In a process of their own, because a process looks for its GPUs once.
"""

import os

from tests import fake_gpu

os.environ["SMDDP_GPU_LIBRARY"] = str(fake_gpu.build())
os.environ["SMDDP_NCCL_LIBRARY"] = str(fake_gpu.build_nccl())
os.environ.setdefault("FAKE_GPU_DEVICES", "4")
os.environ.setdefault("FAKE_GPU_DELAY_US", "200")
