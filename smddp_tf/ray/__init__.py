"""Ranks that are actors of Ray: `RayExecutor` of `horovod.ray`. Under Ray Train: `smddp_tf.ray.train`."""

from smddp_tf.ray.executor import RayExecutor

__all__ = ["RayExecutor"]
