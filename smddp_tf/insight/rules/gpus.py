"""Samples of the hosts that have GPUs, as the published rules look at them."""

import numpy as np
from numpy.typing import NDArray

from smddp_tf.insight.finding import NotSeen
from smddp_tf.insight.recording import Numbers, Recording, Table
from smddp_tf.monitor.files import SAMPLE_SECONDS

# Rules whose faults let GPUs wait.
GPUS_WAIT = ("CPUBottleneck", "IOBottleneck", "Dataloader", "LoadBalancing", "LateRank", "SlowLink", "NothingHidden")


def gpu_hosts(recording: Recording, patience: int) -> dict[str, Table]:
    """By host, what was sampled while it trained, without the first `patience` samples.

    Raises:
        NotSeen: no GPU, or too few samples.
    """
    with_gpus = {host: table for host, table in recording.hosts.items() if table["gpu"].shape[1]}
    if not with_gpus:
        raise NotSeen("no host has a GPU")
    found = {
        host: {name: column[patience:] for name, column in recording.while_training(table).items()}
        for host, table in with_gpus.items()
    }
    if not any(table["time"].size for table in found.values()):
        raise NotSeen(f"it needs more than {patience * SAMPLE_SECONDS:g} s of training")
    return {host: table for host, table in found.items() if table["time"].size}


def percentile(samples: Numbers, percent: float, window: int) -> float:
    """Of each window of so many samples; the median of all windows."""
    parts = np.split(samples, range(window, len(samples) - window + 1, window))
    return float(np.median([np.percentile(part, percent) for part in parts]))


def idle_while(busy: NDArray[np.bool_], table: Table, gpu_below: float) -> float:
    """The percentage of samples at which the GPUs together were below a use, and something else was busy."""
    return float(100 * np.mean((table["gpu"].mean(1) < gpu_below) & busy))
