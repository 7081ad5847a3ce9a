"""A tf.data service: processes of one job prepare the batches that the processes of another train on.

The module stands for `horovod.tensorflow.data.compute_service`. It only starts TensorFlow's own servers
(`tf.data.experimental.service`) and lets them find each other through a file:

    mpirun -np 8 python -m smddp_tf.data.compute_worker /shared/compute.json          # the compute job
    mpirun -np 4 python train.py /shared/compute.json                                 # the training job

where train.py has

    config = TfDataServiceConfig.read("/shared/compute.json", wait_for_file_creation=True)
    dataset = dataset.send_to_data_service(config, hvd.rank(), hvd.size())
    model.fit(dataset, steps_per_epoch=100)
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tensorflow as tf

from smddp_tf import basics
from smddp_tf.data.service_registry import ComputeClient, my_address
from smddp_tf.monitor.lines import replacing

__all__ = ["TfDataServiceConfig", "compute_worker_fn", "send_to_data_service", "tf_data_service"]

_SIDES = ("compute", "training")
_LONGEST_WAIT_FOR_FILE = 1800.0  # seconds; the compute job may be in a queue


@dataclasses.dataclass(frozen=True)
class TfDataServiceConfig:
    """The address and the settings of a compute job.

    Args:
        dispatchers: number of dispatchers. Each serves the trainers whose rank modulo this number is its own.
        workers_per_dispatcher: number of workers of each dispatcher.
        dispatcher_side: "compute" or "training": the job in which dispatchers run.
        addresses: tuple of host and port of the compute service.
        key: bytes, its key. Every process that knows it can take part.
        timeout: seconds to wait for what is being started. Defaults to 60.
    """

    dispatchers: int
    workers_per_dispatcher: int
    dispatcher_side: str
    addresses: tuple[str, int]
    key: bytes
    timeout: int = 60

    def __post_init__(self) -> None:
        if self.dispatcher_side not in _SIDES:
            raise ValueError(
                f"`dispatcher_side` must be one of {', '.join(map(repr, _SIDES))}. Received: {self.dispatcher_side!r}."
            )
        for name in ("dispatchers", "workers_per_dispatcher"):
            if getattr(self, name) < 1:
                raise ValueError(f"`{name}` must be at least 1. Received: {getattr(self, name)!r}.")

    def compute_client(self, verbose: int = 1) -> ComputeClient:
        """Connects to the compute service.

        Args:
            verbose: accepted for compatibility with Horovod; has no effect.

        Raises:
            ConnectionError: no compute service of this configuration answers.
        """
        return ComputeClient(self.addresses, self.key, verbose, self.timeout)

    def to_dict(self) -> dict[str, Any]:
        """The configuration as values that JSON supports."""
        return {**dataclasses.asdict(self), "addresses": list(self.addresses), "key": self.key.hex()}

    @staticmethod
    def from_dict(config: dict[str, Any]) -> TfDataServiceConfig:
        """Returns the configuration that `to_dict` has converted."""
        host, port = config["addresses"]
        return TfDataServiceConfig(**{**config, "addresses": (host, port), "key": bytes.fromhex(config["key"])})

    def write(self, filename: str | Path) -> None:
        """Writes a file that only the user may read. It appears complete or not at all."""
        with replacing(Path(filename), "w") as file:
            json.dump(self.to_dict(), file)

    @staticmethod
    def read(
        filename: str | Path, wait_for_file_creation: bool = False, timeout: float = _LONGEST_WAIT_FOR_FILE
    ) -> TfDataServiceConfig:
        """Reads what `write` has written.

        Args:
            filename: the file.
            wait_for_file_creation: bool, waits until the file is there. Defaults to `False`.
            timeout: seconds to wait for the file. Defaults to 1800.

        Raises:
            TimeoutError: the file was not written in time.
        """
        give_up_at = time.monotonic() + timeout
        while wait_for_file_creation and not Path(filename).exists():
            if time.monotonic() > give_up_at:
                raise TimeoutError(
                    f"{filename} was not written within {timeout:.0f} s. Is the compute job running, does it write its "
                    "configuration there, and do all hosts see the same file?"
                )
            time.sleep(0.2)
        return TfDataServiceConfig.from_dict(json.loads(Path(filename).read_text()))


@contextlib.contextmanager
def tf_data_service(compute_config: TfDataServiceConfig, rank: int) -> Iterator[str]:
    """A context in which this trainer's dispatcher has all its workers.

    Where `dispatcher_side` is "training", the first `dispatchers` ranks start one each, which ends with the block.

    Args:
        compute_config: how to reach the compute job.
        rank: integer, this trainer's rank.

    Yields:
        The address of the dispatcher, "grpc://host:port".

    Raises:
        TimeoutError: a dispatcher or a worker was not registered in time.
    """
    client = compute_config.compute_client()
    server = None
    if compute_config.dispatcher_side == "training" and rank < compute_config.dispatchers:
        server = _start_dispatcher(client, rank)
    dispatcher = rank % compute_config.dispatchers
    address = client.wait_for_dispatcher_registration(dispatcher)
    client.wait_for_dispatcher_worker_registration(dispatcher)
    try:
        yield f"grpc://{address}"
    finally:
        if server is not None:
            server._stop()


def send_to_data_service(
    dataset: tf.data.Dataset,
    compute_config: TfDataServiceConfig,
    rank: int,
    size: int | None = None,
    processing_mode: str = "distributed_epoch",
    reuse_dataset: bool = False,
    round_robin: bool = False,
) -> tf.data.Dataset:
    """Returns a dataset whose elements are prepared by the compute job.

    Args:
        dataset: what each worker runs: all transformations before this call.
        compute_config: how to reach the compute job.
        rank: integer, this trainer's rank.
        size: integer, number of trainers; needed with `round_robin`. Defaults to None.
        processing_mode: "distributed_epoch" (each element once over all workers) or "parallel_epochs" (each worker all
            of them). Defaults to "distributed_epoch".
        reuse_dataset: bool, lets the trainers of a dispatcher share one run of the dataset. Defaults to `False`.
        round_robin: bool, hands out elements to the trainers in turn; needs `reuse_dataset` and a dataset without end.
            Defaults to `False`.

    Returns:
        A `tf.data.Dataset` with the elements of `dataset`; it lives as long as the process.

    Raises:
        ValueError: `round_robin` without `size` or without `reuse_dataset`.
    """
    if round_robin and not (reuse_dataset and size):
        raise ValueError(
            "`round_robin` needs `reuse_dataset=True` and `size`. "
            f"Received: reuse_dataset={reuse_dataset}, size={size}."
        )
    # Our server must live as long as the dataset does, which is not known: as long as the process.
    address = _of_process.enter_context(tf_data_service(compute_config, rank))
    turns = {}
    if round_robin and size:
        turn, dispatcher = divmod(rank, compute_config.dispatchers)
        trainers = len(range(dispatcher, size, compute_config.dispatchers))
        turns = {"consumer_index": turn, "num_consumers": trainers}
    return dataset.apply(
        tf.data.experimental.service.distribute(
            processing_mode=processing_mode,
            service=address,
            job_name="job" if reuse_dataset else None,
            **turns,
        )
    )


def compute_worker_fn(compute_config: TfDataServiceConfig) -> None:
    """Runs in every process of the compute job: starts its servers and waits until `shutdown`.

    Worker number w works for dispatcher `w // workers_per_dispatcher`; where dispatchers run on this side, the first
    worker of each starts it. The number is the rank, after `hvd.init()`.

    Args:
        compute_config: the `TfDataServiceConfig` of the compute job.

    Raises:
        TimeoutError: a dispatcher was not registered in time.
    """
    basics.init()
    worker = basics.rank()
    dispatcher = worker // compute_config.workers_per_dispatcher
    client = compute_config.compute_client()
    servers: list[Any] = []
    if compute_config.dispatcher_side == "compute" and worker % compute_config.workers_per_dispatcher == 0:
        servers.append(_start_dispatcher(client, dispatcher))
    address = client.wait_for_dispatcher_registration(dispatcher)
    configuration = tf.data.experimental.service.WorkerConfig(
        dispatcher_address=address, worker_address=f"{my_address()}:%port%"
    )
    servers.append(tf.data.experimental.service.WorkerServer(configuration))
    client.register_worker_for_dispatcher(dispatcher, worker)
    client.wait_for_shutdown()
    while servers:
        servers.pop()._stop()


tf.data.Dataset.send_to_data_service = send_to_data_service  # as Horovod has it
_of_process = contextlib.ExitStack()


def _start_dispatcher(client: ComputeClient, dispatcher: int) -> Any:
    server = tf.data.experimental.service.DispatchServer()
    port = server.target.rsplit(":", 1)[1]
    client.register_dispatcher(dispatcher, f"{my_address()}:{port}")
    return server
