"""doctor: what can be wrong around a job, on all of its ranks. Needs no TensorFlow."""

from __future__ import annotations

import os
import re
import resource
import shutil
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from smddp_tf import basics
from smddp_tf._native import loader, prebuilt, threads
from smddp_tf.collectives.objects import allgather_object
from smddp_tf.lifecycle import versions

_CLOCK_ROUNDS, _CLOCKS_APART_S, _SLOW_MBPS = 5, 0.1, 1000
_LEAST_MEMORY, _LEAST_SHARED, _LEAST_FILES = 2**30, 2**26, 1024


class Finding(NamedTuple):
    """The result of one check, with advice, and the ranks that it concerns. `level` is "ok", "warning" or "error"."""

    level: str
    what: str
    found: str
    advice: str = ""
    ranks: tuple[int, ...] = ()

    def __str__(self) -> str:
        where = f" [rank {', '.join(map(str, self.ranks))}]" if self.ranks and self.level != "ok" else ""
        return f"{self.level:8} {self.what:14} {self.found}{where} {self.advice}".rstrip()


def doctor() -> list[Finding]:
    r"""Checks the environment of the job: versions, MPI, network, GPUs, cores, limits, clocks, names of hosts.

    All ranks call it together; it calls `hvd.init()` first. `smddprun --doctor` does so in a job of its own.

    Example:
    >>> findings = hvd.doctor()
    >>> if hvd.rank() == 0:
    ...     print(*findings, sep="\n")

    Returns:
        A list, the same on all ranks. For each finding `level` is "ok", "warning" or "error", `advice` says what to do,
        and `ranks` lists the ranks concerned; numbers in the text are those of the first one.

    Raises:
        EngineError: a rank has left, or does not take part in time.
    """
    basics.init()
    hosts = sorted(set(allgather_object(socket.gethostname(), name=threads.of_thread("doctor.hosts"))))
    rounds = [allgather_object(time.time(), name=threads.of_thread("doctor.clocks")) for _ in range(_CLOCK_ROUNDS)]
    # The smallest difference has the least error from ranks that leave an allgather at different times.
    offset = min((times[basics.rank()] - times[0] for times in rounds), key=abs)
    try:
        report = [*_job_findings(offset), *_host_findings(os.environ, basics.local_size()), *map(resolved, hosts)]
    except Exception as error:  # the other ranks wait for an answer
        report = [Finding("error", "doctor", f"{type(error).__name__}: {error}", "Please report this.")]
    rows: dict[tuple[str, str, str], Finding] = {}
    for rank, findings in enumerate(allgather_object(report, name=threads.of_thread("doctor.findings"))):
        for each in findings:
            first = rows.setdefault((each.what, each.level, each.advice), each)
            rows[each.what, each.level, each.advice] = first._replace(ranks=tuple(sorted({*first.ranks, rank})))
    return list(rows.values())


def _finding(wrong: bool, what: str, found: str, advice: str, level: str = "warning") -> Finding:
    return Finding(level, what, found, advice) if wrong else Finding("ok", what, found)


def _job_findings(offset: float) -> list[Finding]:
    core, ranks, nodes = loader.core(), basics.local_size(), basics.cross_size()
    stats, built = core.stats(), core.build_info()
    packages = [f"{what.removeprefix('The version of ')} {found}" for what, found in versions.facts()]
    arena, gpus, mbps = stats["arena_bytes"], built["gpus"], stats["rail_bandwidth_mbps"]
    link = f"{nodes} nodes, {stats['rail_latency_us']:.0f} us, {mbps:.0f} Mbit/s for each rank of a node"
    return [
        Finding("ok", "versions", ", ".join([f"smddp_tf {built['version']}", *packages])),
        _finding(not core.mpi_initialized(), "MPI", f"{prebuilt.mpi_library()}, {basics.size()} rank(s)",
                "It is not in use: this rank trains alone. Start with smddprun -np N python train.py"),
        _finding(nodes > 1 and mbps < _SLOW_MBPS, "network", link if nodes > 1 else "one node, not in use",
                "Name another one (smddprun --network-interfaces, --fabric), or use hvd.Compression.auto."),
        _finding(0 < gpus < ranks, "GPUs", f"{gpus} for {ranks} rank(s) of this node. {built['why_no_gpu']}",
                "Start one rank for each GPU: -H host:slots"),
        _finding(ranks > 1 and not arena, "shared memory", f"{arena >> 10} KiB of each rank, {ranks} on this node",
                "Ranks of a node do not share memory. SMDDP_LOG_LEVEL=debug tells more.", "error"),
        _finding(abs(offset) > _CLOCKS_APART_S, "clock", f"{offset:+.2f} s from rank 0's",
                "Run chrony or ntpd on all hosts: timelines of several hosts do not fit together."),
    ]  # fmt: skip


def _host_findings(environment: Mapping[str, str], ranks: int) -> list[Finding]:
    left, free = memory_left(Path("/")), shutil.disk_usage("/dev/shm").free
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return [
        cores(environment, ranks, len(os.sched_getaffinity(0)), os.cpu_count() or 1),
        _finding(left < _LEAST_MEMORY * ranks, "memory", f"{left / 2**30:.1f} GiB left for {ranks} rank(s)",
                "Start fewer ranks on this node, or raise the container's limit: docker run --memory"),
        _finding(0 <= files < _LEAST_FILES, "open files", f"at most {files}", f"Raise it: ulimit -n {_LEAST_FILES}"),
        _finding(free < _LEAST_SHARED, "/dev/shm", f"{free >> 20} MiB free", "Enlarge it: docker run --shm-size 1g"),
    ]  # fmt: skip


def cores(environment: Mapping[str, str], ranks: int, mine: int, of_host: int) -> Finding:
    """Checks the number of cores that this rank may use, and of the threads on them. `ranks`: those on its node."""
    names = ("TF_NUM_INTRAOP_THREADS", "OMP_NUM_THREADS")
    given = " ".join(f"{name}={environment[name]}" for name in names if environment.get(name))
    found = f"{mine} of {of_host} for this rank, {ranks} rank(s) on this node, {given or 'threads not limited'}."
    if ranks > of_host:
        return Finding("warning", "cores", found, "There are more ranks than cores: start fewer (-np).")
    if mine < of_host // ranks:
        return Finding("warning", "cores", found, "Ranks are bound: start with smddprun, or mpirun --bind-to none")
    advice = f"Ranks start a thread for each core they see: set {names[0]}={of_host // ranks}"
    return _finding(mine * ranks > 2 * of_host and not given, "cores", found, advice)


def memory_left(root: Path) -> int:
    """Returns the free bytes of the host, or of the container's limit (control groups, version 2 and 1)."""
    left = int(re.findall(r"MemAvailable:\s+(\d+)", (root / "proc/meminfo").read_text())[0]) << 10
    for limit, used in (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes")):
        for folder in (root / "sys/fs/cgroup", root / "sys/fs/cgroup/memory"):
            if (folder / limit).exists() and (most := (folder / limit).read_text().strip()) != "max":
                left = min(left, int(most) - int((folder / used).read_text()))
    return left


def resolved(host: str) -> Finding:
    """Checks that this rank's host knows an address of another host."""
    try:
        socket.getaddrinfo(host, None)
    except OSError as error:
        return Finding("error", "host names", f"{host}: {error.strerror}.", f"Add {host} to DNS or /etc/hosts.")
    return Finding("ok", "host names", "have addresses")
