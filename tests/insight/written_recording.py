"""Recordings in the form of `smddp_tf/monitor/files.py`, written without a job: synchronous steps that can be changed.

The ranks of a step wait for the slowest one, then for the part of the communication that is not hidden. All values
differ by rank, step and sample.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from smddp_tf.monitor import files

STARTED, INITIALIZATION = 1_700_000_000.0, 30.0
STORAGE = 3e6  # bytes per second of a rank


class WrittenRecording:
    """A healthy job of `hosts` hosts; `write` takes what its arrays then hold.

    `computation`, `input`, `exposed` and `hidden` are ranks x steps, in seconds; `process` and `host` have a table for
    each rank and host, of arrays that begin with the number of samples.
    """

    def __init__(self, hosts: int = 2, local: int = 2, gpus: int = 0, cores: int = 8) -> None:
        steps = 1600 if gpus else 600  # the rules on GPUs need more than 1000 samples
        draw = np.random.default_rng(hosts + 10 * local + steps)
        self.hosts, self.local, self.gpus, self.cores = hosts, local, gpus, cores
        ranks = hosts * local
        self.computation = 0.40 + 0.01 * draw.random((ranks, steps)) + 0.003 * np.arange(ranks)[:, None]
        self.input = 0.01 + 0.002 * draw.random((ranks, steps))
        self.exposed = 0.03 + 0.004 * draw.random((1, steps))  # of the communication alone
        self.hidden = 0.20 + 0.01 * draw.random((ranks, steps))
        self.initialization = np.full(ranks, INITIALIZATION) + np.arange(ranks)
        self.clock = 0.001 * np.arange(ranks)
        self.ended = True
        self.samples = samples = int(0.46 * steps / files.SAMPLE_SECONDS)
        time = np.arange(samples) * files.SAMPLE_SECONDS

        def near(value: float, *more: int) -> np.ndarray:
            return value * (0.95 + 0.1 * draw.random((samples, *more)))

        self.process = [
            {
                "cpu": near(150 + rank), "memory": near(2e9), "read_bytes": STORAGE * (1 + 0.2 * rank) * time,
                "storage_read_bytes": STORAGE * (1 + 0.2 * rank) * time, "threads": near(30),
                "children": np.zeros(samples), "children_cpu": np.zeros(samples),
            }
            for rank in range(ranks)
        ]  # fmt: skip
        self.host = [
            {
                "cpu": near(45 + host, cores), "iowait": near(2), "runnable": near(4), "memory": near(20e9),
                "memory_total": np.full(samples, 64e9), "disk_read": near(6e6), "disk_written": near(1e5),
                "sent": near(450e6), "received": near(450e6), "gpu": near(88, gpus), "gpu_memory": near(80, gpus),
            }
            for host in range(hosts)
        ]  # fmt: skip
        self.rail_bandwidth_mbps = 4000.0 if hosts > 1 else 0.0

    def name(self, host: int) -> str:
        return f"node-{host}"

    def write(self, folder: Path) -> Path:
        folder.mkdir(exist_ok=True)
        own = self.computation + self.input
        seconds = own.max(0) + self.exposed[0]
        exposed = seconds - own
        ends = STARTED + np.cumsum(seconds)
        for rank in range(len(own)):
            times = ends + self.initialization[rank] + self.clock[rank]
            steps = {
                "step": np.arange(len(seconds)), "epoch": np.arange(len(seconds)) // 200, "time": times,
                "seconds": seconds, "input": self.input[rank], "reducing": exposed[rank] + self.hidden[rank],
                "exposed": exposed[rank], "samples": np.full(len(seconds), 32 + rank),
            }  # fmt: skip
            _write(files.steps_file(folder, rank), steps)
            began = STARTED + self.initialization[rank] + self.clock[rank]
            sampled = began + np.arange(self.samples) * files.SAMPLE_SECONDS
            _write(files.process_file(folder, rank), {"time": sampled, **self.process[rank]})
            files.rank_file(folder, rank).write_text(json.dumps(self._facts(rank, times)), encoding="utf-8")
            if rank % self.local == 0:
                host = rank // self.local
                _write(files.host_file(folder, self.name(host)), {"time": sampled, **self.host[host]})
        return folder

    def _facts(self, rank: int, times: np.ndarray) -> dict[str, Any]:
        return {
            "format": files.FORMAT, "rank": rank, "size": self.hosts * self.local, "local_rank": rank % self.local,
            "local_size": self.local, "host": self.name(rank // self.local), "node": rank // self.local,
            "nodes": self.hosts, "pid": 100 + rank, "started": STARTED + self.clock[rank], "first_step": times[0],
            "ended": times[-1] + 1 if self.ended else None, "cores": self.cores, "memory_total": 64_000_000_000,
            "gpus": ["GPU"] * self.gpus, "versions": {"smddp_tf": "0.1.0"}, "rail_latency_us": 20.0,
            "rail_bandwidth_mbps": self.rail_bandwidth_mbps, "clock": self.clock[rank] if rank else None,
        }  # fmt: skip


def _write(file: Path, columns: dict[str, np.ndarray]) -> None:
    rows = zip(*(column.tolist() for column in columns.values()))
    file.write_text("".join(json.dumps(dict(zip(columns, row))) + "\n" for row in rows), encoding="utf-8")
