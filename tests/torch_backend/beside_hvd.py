"""PyTorch and TensorFlow in the same ranks; then a group whose ranks are others than the session's."""

import tensorflow as tf
import torch
import torch.distributed as dist

import smddp_tf as hvd
import smddp_tf.torch

hvd.init()
dist.init_process_group("smddp")
tensor = torch.tensor([hvd.rank() + 1.0])
dist.all_reduce(tensor)
summed = hvd.allreduce(tf.constant([10.0 * (hvd.rank() + 1)]), op=hvd.Sum)
dist.destroy_process_group()
again = hvd.allreduce(tf.constant([100.0 * (hvd.rank() + 1)]), op=hvd.Sum)
print(tensor.item(), summed.numpy()[0], again.numpy()[0], flush=True)
try:
    dist.init_process_group("smddp", store=dist.HashStore(), rank=0, world_size=1)
except RuntimeError as error:
    print(error, flush=True)
