"""`smddp_tf.elastic`: training that continues from its last commit. The drop-in for `horovod.tensorflow.elastic`.

>>> state = hvd.elastic.TensorFlowKerasState(model, optimizer, batch=0, epoch=0)
>>> @hvd.elastic.run
... def train(state): ...

A process that dies is left out under `smddprun --no-mpi --elastic`; with MPI it ends the job, which `smddprun
--elastic` starts again from the last commit on disk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from smddp_tf._native.tensorflow_import import import_with_tensorflow
from smddp_tf.elastic.running import run, run_fn
from smddp_tf.elastic.state import HostUpdateResult, ObjectState, State
from smddp_tf.exceptions import HorovodInternalError, HostsUpdatedInterrupt

if TYPE_CHECKING:
    from smddp_tf.elastic.variables import TensorFlowState
    from smddp_tf.keras.elastic.callbacks import CommitStateCallback, UpdateBatchStateCallback, UpdateEpochStateCallback
    from smddp_tf.keras.elastic.states import KerasState, TensorFlowKerasState

__all__ = [
    "CommitStateCallback", "HorovodInternalError", "HostUpdateResult", "HostsUpdatedInterrupt", "KerasState",
    "ObjectState", "State", "TensorFlowKerasState", "TensorFlowState", "UpdateBatchStateCallback",
    "UpdateEpochStateCallback", "run", "run_fn",
]  # fmt: skip

# Names whose modules import TensorFlow or Keras: those that are not imported above.
_LAZY = frozenset(__all__) - globals().keys()


if not TYPE_CHECKING:  # a misspelt name is an error of a type checker

    def __getattr__(name: str) -> Any:
        if name not in _LAZY:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module = "smddp_tf.elastic.variables" if name == "TensorFlowState" else "smddp_tf.keras.elastic"
        value = globals()[name] = getattr(import_with_tensorflow(module), name)
        return value


def __dir__() -> list[str]:
    return sorted(__all__)
