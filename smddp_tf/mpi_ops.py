"""The names of `horovod.tensorflow.mpi_ops`, for scripts that import them from there."""

from smddp_tf._native import needs_tensorflow  # noqa: F401

# isort: split

from smddp_tf import basics
from smddp_tf.basics import *  # noqa: F403
from smddp_tf.collectives import ops, topology_ops
from smddp_tf.collectives.functions import broadcast_
from smddp_tf.collectives.ops import *  # noqa: F403
from smddp_tf.collectives.reduce_op import resolve_average as handle_average_backwards_compatibility
from smddp_tf.collectives.topology_ops import *  # noqa: F403
from smddp_tf.compat.horovod.internals import _allreduce, check_num_rank_power_of_2, gpu_available

_basics = basics  # of Horovod an object, of which programs use the same names

__all__ = [
    *basics.__all__, *ops.__all__, *topology_ops.__all__, "_allreduce", "broadcast_", "check_num_rank_power_of_2",
    "gpu_available", "handle_average_backwards_compatibility",
]  # fmt: skip
