"""Rules on the data that ranks read and prepare."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from smddp_tf.insight.finding import Finding, Parameters, rule
from smddp_tf.insight.recording import NotSeen, Numbers, Recording, Table
from smddp_tf.insight.rules.hosts import gpu_hosts, idle_while
from smddp_tf.insight.rules.waiting import waiting_hosts


@rule("IOBottleneck")
def io_bottleneck(recording: Recording, given: Parameters) -> Iterator[Finding]:
    """GPUs are idle while the CPU waits for disks, or, without GPUs too, ranks wait for the files that they read.

    Source: SageMaker Debugger, developer guide; `waiting` is ours.
    """
    slow = [each for each in waiting_hosts(recording, given.waiting) if each.reads]
    for each in slow:
        yield Finding(each.lost, each.figures, each.host, case="files")
    try:
        hosts = gpu_hosts(recording, given.patience)
    except NotSeen:
        if not recording.aligned["step"].size:
            raise
        return
    for host, table in hosts.items():
        share = idle_while(table["iowait"] > given.io_threshold, table, given.gpu_threshold)
        if share > given.threshold and not slow:
            yield Finding(share / 100, {"share": share}, host, case="gpu")


@rule("Dataloader")
def dataloader(recording: Recording, given: Parameters) -> Iterator[Finding]:
    """Ranks wait for input, but not for files, or have more loader processes than cores.

    Source: SageMaker Debugger's rule configuration, which compares the loader processes with the cores; `waiting` is
    ours.
    """
    loaders = {host: _loaders(recording, host) for host in recording.hosts}
    for each in waiting_hosts(recording, given.waiting):
        most = max((n for host, n in loaders.items() if each.host in (host, None)), default=0.0)
        case = "busy" if each.figures["busy"] >= 80 else "few" if 0 < most < given.min_threshold else "idle"
        if not each.reads:
            yield Finding(each.lost, {**each.figures, "loaders": most}, each.host, case=case)
    for host, percent in loaders.items():
        if percent > given.max_threshold:
            yield Finding(1 - 100 / percent, {"loaders": percent}, host, case="processes")


def _loaders(recording: Recording, host: str) -> float:
    """The child processes of the host's ranks, in percent of its cores."""
    children = {rank: recording.while_training(recording.processes[rank])["children"] for rank in recording.on(host)}
    return float(sum(100 * np.median(n) / recording.facts[rank]["cores"] for rank, n in children.items() if n.size))


@rule("AllRanksReadEverything")
def all_ranks_read_everything(recording: Recording, given: Parameters) -> Iterator[Finding]:
    """The ranks of a host read the same files. Ours.

    What one rank has read from storage comes to the others from the page cache, so the ranks together then read as much
    from storage as one of them reads in all. Ranks that read different files read from storage what they read in all.
    """
    found = False
    for host in recording.hosts:
        tables = [recording.processes[rank] for rank in recording.on(host)]
        if len(tables) < 2 or not all(table["time"].size for table in tables):
            continue
        storage, read = _while_read_from_storage(tables)
        if storage < 1e6 * given.least or storage < given.cached * max(read):
            continue
        found = True
        totals = [float(np.ptp(table["read_bytes"])) for table in tables]
        if storage < sum(read) * (1 + 1 / len(tables)) / 2 and max(totals) < 1.1 * min(totals):
            figures = {"ranks": len(tables), "each": float(np.mean(totals)) / 1e6, "storage": storage / 1e6}
            yield Finding(0.0, figures, host)
    if not found:
        raise NotSeen("no two ranks of a host read from storage what was not in the page cache")


def _while_read_from_storage(tables: list[Table]) -> tuple[float, list[float]]:
    """Bytes from storage of all ranks, and all bytes of each, when nearly all that comes from storage had come."""
    times = np.unique(np.concatenate([table["time"] for table in tables]))
    storage = np.sum([_since_begin(table, "storage_read_bytes", times) for table in tables], axis=0)
    at = int(np.argmax(storage >= 0.95 * storage[-1]))
    return float(storage[at]), [float(_since_begin(table, "read_bytes", times)[at]) for table in tables]


def _since_begin(table: Table, name: str, times: Numbers) -> Numbers:
    return np.asarray(np.interp(times, table["time"], table[name] - table[name][0]))
