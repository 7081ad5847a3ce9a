"""Hosts all of whose ranks wait for input, and what they do in the meantime."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from smddp_tf.insight.recording import Recording


class Waiting(NamedTuple):
    """Where: a host, or None for all of them. `rate` and `busy` are medians of the ranks."""

    host: str | None
    share: float  # percent of the step, of the rank that waits least
    rate: float  # MB/s that a rank reads
    busy: float  # percent of its part of the cores that a rank uses

    @property
    def reads(self) -> bool:
        """Whether it is files that they wait for: they read, more than the monitor itself, and have cores left."""
        return self.rate >= 1 and self.busy < 80


def waiting_hosts(recording: Recording, least: float) -> Iterator[Waiting]:
    """Those whose ranks all wait for at least so many percent of their steps."""
    steps = recording.aligned
    for host, rows in recording.groups.items() if steps["step"].size else ():
        share = 100 * float(np.median(steps["input"][rows] / steps["seconds"][rows], axis=1).min())
        if share >= least:
            yield Waiting(host or None, share, *np.median([_use(recording, row) for row in rows], axis=0).tolist())


def _use(recording: Recording, row: int) -> tuple[float, float]:
    rank = recording.ranks[row]
    samples, facts = recording.while_training(recording.processes[rank]), recording.facts[rank]
    if samples["time"].size < 2:
        return 0.0, 0.0
    rate = np.ptp(samples["read_bytes"]) / np.ptp(samples["time"]) / 1e6
    return float(rate), recording.cpu_of(rank) * facts["local_size"] / facts["cores"]
