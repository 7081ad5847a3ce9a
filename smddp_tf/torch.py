"""PyTorch on this library's engine: `torch.distributed.init_process_group("smddp")` works after this import.

>>> import smddp_tf.torch
>>> torch.distributed.init_process_group("smddp")
>>> model = torch.nn.parallel.DistributedDataParallel(model)

Needs no TensorFlow. Where `smddp_tf` is installed, and not only on the path, PyTorch knows the backend without it; but
under `mpirun` this import also sets the variables by which PyTorch's processes find one another.
"""

from __future__ import annotations

try:
    import torch as torch
except ImportError as error:
    raise ImportError("smddp_tf.torch needs PyTorch, which is not installed: pip install torch.") from error

from smddp_tf.torch_backend import launched
from smddp_tf.torch_backend.groups import Options, register

__all__ = ["Options"]

register()
launched.set_variables()
