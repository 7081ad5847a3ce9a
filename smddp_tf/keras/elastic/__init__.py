"""`smddp_tf.keras.elastic`: the drop-in for `horovod.tensorflow.keras.elastic` and `horovod.keras.elastic`."""

from smddp_tf.elastic import run
from smddp_tf.keras.elastic.callbacks import CommitStateCallback, UpdateBatchStateCallback, UpdateEpochStateCallback
from smddp_tf.keras.elastic.states import KerasState, TensorFlowKerasState

__all__ = [
    "CommitStateCallback", "KerasState", "TensorFlowKerasState", "UpdateBatchStateCallback",
    "UpdateEpochStateCallback", "run",
]  # fmt: skip
