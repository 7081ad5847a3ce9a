"""`keras.distribution.DataParallel` on the TensorFlow backend, on any number of ranks and hosts.

Example:

>>> import keras
>>> import smddp_tf.keras.distribution
>>> keras.distribution.initialize()
>>> keras.distribution.set_distribution(keras.distribution.DataParallel())
>>> model.compile(keras.optimizers.AdamW(1e-3), loss="mse")
>>> model.fit(x, y, batch_size=256, epochs=3)

The import gives Keras the functions that its TensorFlow backend lacks; there is nothing else to call here. Start the
script with `smddprun -np 4 python train.py` or mpirun. With JAX or PyTorch as the backend the import changes nothing.
"""

from __future__ import annotations

import sys
from typing import Any

import keras


def start() -> None:
    """Trains a program data-parallel that says nothing of it: `smddprun --keras-distribution`."""
    if keras.config.backend() == "tensorflow":
        keras.distribution.initialize()
        if len(keras.distribution.list_devices()) > 1:
            keras.distribution.set_distribution(keras.distribution.DataParallel())


def _model_parallel(plain: Any, *args: Any, **kwargs: Any) -> None:
    """Keras's constructor. Weights are stored by the layout map; batches are shared among all ranks."""
    plain(*args, **kwargs)
    make_parts()


if keras.config.backend() == "tensorflow":
    from smddp_tf.gradients.options import partition_state_of
    from smddp_tf.keras import patch_table, patches
    from smddp_tf.keras._backend import needs_keras_3
    from smddp_tf.keras.data_parallel import distribution_lib
    from smddp_tf.keras.fit.evaluate import replace_inference
    from smddp_tf.keras.optimizer.auto_wrap import wrap_at_first_step
    from smddp_tf.keras.optimizer.loss_scaling import reduce_before_finite_check
    from smddp_tf.keras.roles import current_distribution, global_means
    from smddp_tf.keras.sharding.partitioned_weights import make_parts
    from smddp_tf.keras.sharding.shards import degree_of

    needs_keras_3("smddp_tf.keras.distribution")
    patches.replace(patch_table.BACKEND_FUNCTIONS, lambda _: distribution_lib)
    patches.wrap(patch_table.MODEL_PARALLEL, _model_parallel)
    current_distribution.keep_through_clear_session()
    replace_inference()
    global_means.install()
    wrap_at_first_step()
    reduce_before_finite_check()

    class DataParallel(keras.distribution.DataParallel):
        """`keras.distribution.DataParallel` whose optimizers may share their state among the ranks.

        Args:
            args: those of Keras's class.
            partition_state: as in `hvd.DistributedOptimizer`. Defaults to `None`: every rank has all of the state.
            shard: the older name of `partition_state`.
            kwargs: those of Keras's class.
        """

        def __init__(
            self, *args: Any, partition_state: str | int | None = None, shard: str | int | None = None, **kwargs: Any
        ) -> None:
            super().__init__(*args, **kwargs)
            self.partition_state = partition_state_of(partition_state, shard)
            degree_of(self.partition_state)

else:
    print(
        f"smddp_tf.keras.distribution: Keras computes with {keras.config.backend()}, which has a keras.distribution of "
        "its own; nothing is changed.",
        file=sys.stderr,
    )
