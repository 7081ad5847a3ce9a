"""Rules on what each host and its GPUs use. Those on GPUs are from SageMaker Debugger's developer guide, in percent."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from smddp_tf.insight.finding import Finding, Parameters, rule
from smddp_tf.insight.recording import NotSeen, Numbers, Recording, Table
from smddp_tf.monitor.files import SAMPLE_SECONDS


@rule("OverallSystemUsage")
def overall_system_usage(recording: Recording, given: Parameters) -> Iterator[Finding]:
    """Percentiles of what each host uses, `usage`; never a finding. Source: SageMaker Debugger, developer guide."""
    yield from ()


@rule("OversubscribedCores")
def oversubscribed_cores(recording: Recording, given: Parameters) -> Iterator[Finding]:
    """More threads want to run than the host has cores, and all cores are busy. Ours."""
    hosts = {host: table for host, table in recording.hosts_while_training.items() if table["time"].size}
    if not hosts:
        raise NotSeen("no samples of a host")
    for host, table in hosts.items():
        cores, used = table["cpu"].shape[1], float(np.median(table["cpu"].sum(1)))
        runnable = float(np.median(table["runnable"])) - 1  # one is who counts them
        if runnable > given.threshold * cores and used > given.busy * cores:
            own = sum(recording.cpu_of(rank) for rank in recording.on(host))
            others = max(0.0, used - own)
            figures = {"runnable": runnable, "cores": cores, "ours": own / 100, "others": others / 100}
            yield Finding(1 - cores / runnable, figures, host, case="others" if others > used / 4 else "ranks")


def usage(recording: Recording) -> dict[str, dict[str, dict[str, float]]]:
    """By host and measure: the 50th, 95th and 99th percentile while it trained."""
    found = {}
    for host, table in recording.hosts_while_training.items():
        used = {
            "CPU %": table["cpu"].mean(1),
            "waiting for disks %": table["iowait"],
            "memory %": 100 * table["memory"] / table["memory_total"],
            "read from disks MB/s": table["disk_read"] / 1e6,
            "sent MB/s": table["sent"] / 1e6,
            **{f"GPU {gpu} %": samples for gpu, samples in enumerate(table["gpu"].T)},
        }
        if table["time"].size:
            percentiles = {name: np.nanpercentile(samples, (50, 95, 99)).tolist() for name, samples in used.items()}
            found[host] = {name: dict(zip(("p50", "p95", "p99"), values)) for name, values in percentiles.items()}
    return found


@rule("BatchSize")
def batch_size(recording: Recording, given: Parameters) -> Iterator[Finding]:
    """CPU, GPUs and GPU memory are little used."""
    limits = (given.cpu_threshold_p95, given.gpu_threshold_p95, given.gpu_memory_threshold_p95)
    for host, table in gpu_hosts(recording, given.patience).items():
        used = {"cpu": table["cpu"].mean(1), "gpu": table["gpu"].max(1), "gpu_memory": table["gpu_memory"].max(1)}
        p95 = {name: _percentile(samples, 95, given.window) for name, samples in used.items()}
        if all(value < limit for value, limit in zip(p95.values(), limits)):
            yield Finding(1 - float(table["gpu"].mean()) / 100, p95, host)


@rule("CPUBottleneck")
def cpu_bottleneck(recording: Recording, given: Parameters) -> Iterator[Finding]:
    """GPUs are idle while the CPU is busy."""
    for host, table in gpu_hosts(recording, given.patience).items():
        share = idle_while(table["cpu"].mean(1) > given.cpu_threshold, table, given.gpu_threshold)
        if share > given.threshold:
            yield Finding(share / 100, {"share": share}, host)


@rule("GPUMemoryIncrease")
def gpu_memory_increase(recording: Recording, given: Parameters) -> Iterator[Finding]:
    """The mean of a GPU's memory rises, by so many percentage points from one window to the next."""
    for host, table in gpu_hosts(recording, given.patience).items():
        count = len(table["time"]) // given.window
        if count < 2:
            raise NotSeen(f"it compares two windows of {given.window} samples")
        parts = np.split(table["gpu_memory"][: count * given.window], count)
        means = np.array([part.mean(0) for part in parts])  # windows x GPUs
        at, gpu = np.unravel_index(np.argmax(np.diff(means, axis=0)), (count - 1, means.shape[1]))
        before, after = map(float, means[at : at + 2, gpu])
        if after - before > given.increase:
            yield Finding((after - before) / 100, {"gpu": int(gpu), "before": before, "after": after}, host)


@rule("LoadBalancing")
def load_balancing(recording: Recording, given: Parameters) -> Iterator[Finding]:
    """GPUs of a host are used differently.

    The guide leaves the distance of two histograms open. Here it is the area between the cumulative ones: 1 between
    always 0 % and always 100 %.
    """
    hosts = gpu_hosts(recording, given.patience)
    if max(table["gpu"].shape[1] for table in hosts.values()) < 2:
        raise NotSeen("no host has two GPUs")
    for host, table in hosts.items():
        means, ordered = table["gpu"].mean(0), np.sort(table["gpu"], axis=0)
        least, most = int(np.argmin(means)), int(np.argmax(means))
        low, high = float(means[least]), float(means[most])
        distance = float(np.abs(ordered[:, most] - ordered[:, least]).mean()) / 100
        if distance > given.threshold:
            figures = {"least": least, "most": most, "low": low, "high": high, "distance": distance}
            yield Finding((high - low) / 100, figures, host)


@rule("LowGPUUtilization")
def low_gpu_utilization(recording: Recording, given: Parameters) -> Iterator[Finding]:
    """A GPU is under-used, or its use goes up and down."""
    for host, table in gpu_hosts(recording, given.patience).items():
        for gpu, samples in enumerate(table["gpu"].T):
            p5, p95 = (_percentile(samples, percent, given.window) for percent in (5, 95))
            if p95 < given.threshold_p95 or p5 < given.threshold_p5:
                case = "low" if p95 < given.threshold_p95 else "bursts"
                yield Finding(1 - float(samples.mean()) / 100, {"gpu": gpu, "p5": p5, "p95": p95}, host, case=case)


def gpu_hosts(recording: Recording, patience: int) -> dict[str, Table]:
    """By host, what was sampled while it trained, without the first `patience` samples.

    Raises:
        NotSeen: no GPU, or too few samples.
    """
    with_gpus = {host: table for host, table in recording.hosts_while_training.items() if table["gpu"].shape[1]}
    if not with_gpus:
        raise NotSeen("no host has a GPU")
    found = {host: {name: column[patience:] for name, column in table.items()} for host, table in with_gpus.items()}
    found = {host: table for host, table in found.items() if table["time"].size}
    if not found:
        raise NotSeen(f"it needs more than {patience * SAMPLE_SECONDS:g} s of training")
    return found


def idle_while(busy: NDArray[np.bool_], table: Table, gpu_below: float) -> float:
    """The percentage of samples at which the GPUs together were below a use, and something else was busy."""
    return float(100 * np.mean((table["gpu"].mean(1) < gpu_below) & busy))


def _percentile(samples: Numbers, percent: float, window: int) -> float:
    """Of each window of so many samples; the median of all windows."""
    parts = np.split(samples, range(window, len(samples) - window + 1, window))
    return float(np.median([np.percentile(part, percent) for part in parts]))
