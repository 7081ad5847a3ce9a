"""hvd.summary: what this job runs on, in a few lines."""

from __future__ import annotations

import platform
import re
import socket
from pathlib import Path

import psutil

from smddp_tf._native import loader
from smddp_tf.lifecycle import versions
from smddp_tf.monitor.samples import Gpus


class Summary(dict[str, str]):
    """Values by name; printed, one a line."""

    def __str__(self) -> str:
        width = max(map(len, self))
        return "\n".join(f"{name:<{width}}  {value}" for name, value in self.items())


def summary() -> Summary:
    """Returns the setup of this rank: versions, ranks, nodes, MPI, network, processor, GPUs, and its reductions so far.

    Asks no other rank, so it may be called at any time and on any rank, before `init` too.

    Example:
    >>> print(hvd.summary())

    Returns:
        A dictionary of strings that prints as lines. "gradients" has the plans, the steps, and how much of the time
        during which gradients were under way computation hid.
    """
    shown = versions.shown()
    mpi = shown.pop("mpi")
    cores = f"{len(psutil.Process().cpu_affinity() or [])} of {psutil.cpu_count()} cores for this rank"
    processor = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text(encoding="utf-8"))
    up = [name for name, state in psutil.net_if_stats().items() if state.isup and name != "lo"]
    found = {
        "versions": ", ".join(f"{name} {version}" for name, version in shown.items()),
        "ranks": "hvd.init() has not been called",
        "mpi": mpi or "not found",
        "network": ", ".join(up) or "loopback only",
        "cpu": f"{processor[1] if processor else platform.machine()}, {cores}",
        "gpus": ", ".join(Gpus().names()) or "none",
        "gradients": "none reduced",
    }
    core = loader.core()
    if not core.is_initialized():
        return Summary(found)
    stats, here = core.stats(), f"rank {core.rank()}, local rank {core.local_rank()} on {socket.gethostname()}"
    hidden = f", {1 - stats['exposed_ns'] / stats['reducing_ns']:.0%} hidden" if stats["reducing_ns"] else ""
    found["ranks"] = f"{core.size()} on {core.cross_size()} node(s); this is {here}"
    found["gradients"] = f"{stats['plans']} plan(s), {stats['steps']} steps{hidden}"
    if mbps := stats["rail_bandwidth_mbps"]:
        found["network"] += f"; between nodes {stats['rail_latency_us']:.0f} us, {mbps:.0f} Mbit/s"
    return Summary(found)
