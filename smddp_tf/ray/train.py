"""Ray Train: its workers are the ranks."""

from __future__ import annotations

from typing import Any

from ray.train.backend import Backend, BackendConfig

from smddp_tf.lifecycle import assigned
from smddp_tf.ray.executor import begin, place

__all__ = ["SmddpConfig"]


class _SmddpBackend(Backend):
    share_cuda_visible_devices = True

    def on_start(self, worker_group: Any, backend_config: SmddpConfig) -> None:
        for rank, variables in enumerate(assigned.variables_of_ranks(worker_group.execute(place))):
            worker_group.execute_single(rank, begin, {**assigned.variables_of_job(), **variables})


class SmddpConfig(BackendConfig):
    """The `tensorflow_config` of Ray's `TensorflowTrainer`, or the `backend_config` of a `DataParallelTrainer`.

    The training loop calls `hvd.init()` (or `set_distribution`) itself. `TensorflowTrainer` alone would set a
    `TF_CONFIG`, and choose Keras 2.
    """

    backend_cls = _SmddpBackend
