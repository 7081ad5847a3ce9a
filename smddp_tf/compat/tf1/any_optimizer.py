"""`hvd.DistributedOptimizer` of `horovod.tensorflow`: for optimizers of Keras and of TensorFlow 1."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from smddp_tf.collectives import graph
from smddp_tf.collectives.reduce_op import Average
from smddp_tf.compat.tf1.optimizer import DistributedV1Optimizer
from smddp_tf.compression import Compression
from smddp_tf.gradients.reducer import check_groups, settings_in
from smddp_tf.keras.optimizer import distributed
from smddp_tf.keras.optimizer.distributed import checked_passes
from smddp_tf.keras.roles.wrapping import shown_as_horovods
from smddp_tf.process_sets import ProcessSet, global_process_set


@graph.no_autograph
def DistributedOptimizer(
    optimizer: Any,
    name: str | None = None,
    use_locking: bool = False,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    backward_passes_per_step: int = 1,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: Any = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
    shard: Any = None,
) -> Any:
    """`smddp_tf.keras.DistributedOptimizer` with the argument order of `horovod.tensorflow`.

    That one does the work for optimizers of Keras. An optimizer of TensorFlow 1 (`tf.compat.v1.train.*`) is wrapped in
    another one, which reduces in `compute_gradients`, and so in `minimize`.

    Args:
        use_locking: Of the optimizer that is returned around one of TensorFlow 1; for others without effect.

    Raises:
        ValueError: As there; for an optimizer of TensorFlow 1 also if `backward_passes_per_step` is more than 1 in
            eager mode.
    """
    given = dict(locals())
    if isinstance(optimizer, tf.compat.v1.train.Optimizer) and shard is None:
        check_groups(groups, num_groups)
        optimizer_class = shown_as_horovods(DistributedV1Optimizer, "horovod.tensorflow", "_DistributedOptimizer")
        passes, average = checked_passes(backward_passes_per_step), average_aggregated_gradients
        how = settings_in(given)
        return optimizer_class(optimizer, name, use_locking, passes, average, scale_local_gradients, **how)
    del given["use_locking"]
    return distributed.DistributedOptimizer(**given)
