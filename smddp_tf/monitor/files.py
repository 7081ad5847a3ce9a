"""The files of a recording, and the fields of their lines. Imports the standard library only.

A recording is one folder for the job. Times are seconds since the epoch, by the rank's own clock. Files of lines are
bounded: at `MAX_BYTES` one is renamed to `NAME.1`, replacing the last such file, and started again.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TypedDict

FORMAT = 1
MAX_BYTES = 8 << 20
SAMPLE_SECONDS = 0.5


class RankFacts(TypedDict):
    """The facts of a rank; written when recording begins, after the first step, and at the end."""

    format: int
    rank: int
    size: int
    local_rank: int
    local_size: int
    host: str  # its name; with "-" and the number of the node where nodes have the same name
    node: int
    nodes: int
    pid: int
    started: float
    first_step: float | None  # when the first step ended
    ended: float | None
    cores: int  # that this process may use
    memory_total: int
    gpus: list[str]
    versions: dict[str, str]
    rail_latency_us: float
    rail_bandwidth_mbps: float  # 0 on one node
    clock: float | None  # this rank's clock less rank 0's, in seconds


class Step(TypedDict):
    """A training step. Computation takes `seconds` - `input` - `exposed`."""

    step: int  # over the job
    epoch: int | None
    time: float  # of its end
    seconds: float  # from the end of the last step
    input: float  # waiting for the batch
    reducing: float  # gradients were being reduced
    exposed: float  # of that, what no computation hid
    samples: int | None  # of this rank


class ProcessSample(TypedDict):
    """The resources that a rank's process uses."""

    time: float
    cpu: float  # percent of one core
    memory: int
    read_bytes: int  # since recording began, from the page cache too
    storage_read_bytes: int
    threads: int
    children: int
    children_cpu: float


class HostSample(TypedDict):
    """The resources that a host uses, recorded by its local rank 0."""

    time: float
    cpu: list[float]  # percent of each core
    iowait: float
    runnable: int
    memory: int
    memory_total: int
    disk_read: float  # bytes per second since the last sample, as the next three
    disk_written: float
    sent: float
    received: float
    gpu: list[float]  # percent of each
    gpu_memory: list[float]


def rank_file(folder: Path, rank: int) -> Path:
    """`RankFacts`, one object."""
    return folder / f"rank-{rank:05d}.json"


def steps_file(folder: Path, rank: int) -> Path:
    """Lines of `Step`."""
    return folder / f"rank-{rank:05d}.steps.jsonl"


def process_file(folder: Path, rank: int) -> Path:
    """Lines of `ProcessSample`."""
    return folder / f"rank-{rank:05d}.process.jsonl"


def host_file(folder: Path, host: str) -> Path:
    """Lines of `HostSample`; `host` as in `RankFacts`."""
    return folder / f"host-{re.sub(r'[^A-Za-z0-9.-]', '_', host)}.jsonl"
