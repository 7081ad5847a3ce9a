"""Rules on what each host uses."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from smddp_tf.insight.finding import Finding, NotSeen, Parameters, rule
from smddp_tf.insight.recording import Recording


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
