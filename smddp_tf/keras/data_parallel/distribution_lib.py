"""The functions that `keras.distribution` asks of a backend, for TensorFlow: one device for each rank of the job.

Exactly those functions, with the names and arguments of `keras/src/backend/jax/distribution_lib.py`.
"""

from __future__ import annotations

import os
import random
from typing import Any

import tensorflow as tf

from smddp_tf import basics
from smddp_tf.collectives.rank_facts import objects_of_ranks, warn_on_rank_zero
from smddp_tf.data.tf_datasets import global_seed
from smddp_tf.keras._backend import keras
from smddp_tf.rendezvous import starters


def initialize(
    job_addresses: str | None = None, num_processes: int | None = None, process_id: int | None = None
) -> None:
    """Starts the job's communication, gives each rank one GPU of its host, and all ranks one random seed.

    Where a launcher has started the ranks (docs/launching.md), no argument is needed. The seed is that of
    `keras.utils.set_random_seed` where a script has set one before, else a random one: new variables and the shuffling
    of `tf.data` then are equal on all ranks.

    Args:
        job_addresses: "host:port,...", as in Keras; the ranks meet at the first one. Without effect where the launcher
            of an MPI has started them.
        num_processes: None, or the number of ranks of the job.
        process_id: None, or the number of this rank.

    Raises:
        LaunchError: as in `hvd.init`.
        ValueError: the job has another number of ranks, or this rank has another number.
    """
    asked = {"num_processes": num_processes, "process_id": process_id}
    if job_addresses and None not in asked.values():
        os.environ.update(zip(starters.KERAS, map(str, (job_addresses, num_processes, process_id))))
    basics.init()
    found = {"num_processes": basics.size(), "process_id": basics.rank()}
    if any(value is not None and value != found[name] for name, value in asked.items()):
        raise ValueError(
            f"keras.distribution.initialize: the job has {basics.size()} processes; this is number {basics.rank()}. "
            f"Received: num_processes={num_processes}, process_id={process_id}. Leave both out, unset "
            "KERAS_DISTRIBUTION_NUM_PROCESSES and KERAS_DISTRIBUTION_PROCESS_ID, and start the script with "
            "`smddprun -np N` or mpirun; or give job_addresses as well."
        )
    _take_one_gpu()
    _agree_on_seed()


def num_processes() -> int:
    """The number of ranks; starts the job's communication where `initialize` was not called."""
    if not basics.is_initialized():
        initialize()
    return basics.size()


def process_id() -> int:
    """This rank."""
    return basics.rank()


def list_devices(device_type: str | None = None) -> list[str]:
    """One device for each rank of the job, as "gpu:0" or "cpu:0": a rank computes on one.

    Args:
        device_type: "cpu" or "gpu". Defaults to "gpu" where this rank has one, else "cpu".
    """
    has_gpu = bool(tf.config.list_physical_devices("GPU"))
    kind = device_type.lower() if device_type else ("gpu" if has_gpu else "cpu")
    if kind not in ("cpu", "gpu") or (kind == "gpu" and not has_gpu):
        return []
    return [f"{kind}:{number}" for number in range(num_processes())]


def get_device_count(device_type: str | None = None) -> int:
    """The length of `list_devices`."""
    return len(list_devices(device_type))


def distribute_tensor(tensor: object, layout: keras.distribution.TensorLayout) -> Any:
    """The tensor as it is: each rank holds all of a replicated tensor, and its rows of one that has the batch first.

    Under a `ModelParallel`, which divides weights where they are stored, any layout of a layer's output is taken.

    Raises:
        NotImplementedError: `layout` divides the tensor in another way.
    """
    if not isinstance(keras.distribution.distribution(), keras.distribution.ModelParallel):
        _to_backend_layout(layout)
    return tensor


def _to_backend_mesh(device_mesh: keras.distribution.DeviceMesh) -> Any:
    return device_mesh


def _to_backend_layout(tensor_layout: keras.distribution.TensorLayout) -> Any:
    """The layout as it is."""
    mesh = tensor_layout.device_mesh
    axes = list(tensor_layout.axes)
    first = axes[0] if axes else None
    if any(axes[1:]) or (first is not None and mesh is not None and first != mesh.axis_names[0]):
        raise NotImplementedError(
            "On TensorFlow keras.distribution has data parallelism only: a layout can name the batch axis, in its "
            f"first dimension, or no axis. Received: axes={tuple(tensor_layout.axes)}. Use "
            "keras.distribution.DataParallel; for large embedding tables smddp_tf.keras.layers.DistributedEmbedding."
        )
    return tensor_layout


def _take_one_gpu() -> None:
    """Where TensorFlow has not begun to use all of them."""
    gpus = tf.config.list_physical_devices("GPU")
    if len(gpus) < 2 or len(tf.config.get_visible_devices("GPU")) < 2:
        return
    try:
        tf.config.set_visible_devices(gpus[basics.local_rank() % len(gpus)], "GPU")
    except RuntimeError as error:
        raise RuntimeError(
            "keras.distribution.initialize must come before anything is computed, because each rank takes one of "
            f"{len(gpus)} GPUs. Found: {error} (this is rank {basics.rank()})."
        ) from error


def _agree_on_seed() -> None:
    if basics.size() == 1:
        return
    own, drawn = global_seed(), random.SystemRandom().getrandbits(31)
    exchanged = objects_of_ranks((own, drawn), "keras.distribution.initialize (random seed)")
    of_ranks = [seed for seed, _ in exchanged]
    if any(seed != of_ranks[0] for seed in of_ranks):
        warn_on_rank_zero(
            "The ranks have set different random seeds; all go on with rank 0's, because new variables and the order "
            f"of the data must be equal on all ranks. Received: {of_ranks}, by rank."
        )
    if own is None or own != of_ranks[0]:
        keras.utils.set_random_seed(exchanged[0][1] if of_ranks[0] is None else of_ranks[0])
