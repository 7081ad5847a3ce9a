"""Hosts all of whose ranks wait for input, and what they do in the meantime."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from smddp_tf.insight.recording import Recording


class Waiting(NamedTuple):
    host: "str | None"
    share: float  # percent of the step, of the rank that waits least
    rate: float  # bytes that a rank reads per second
    busy: float  # percent of its part of the cores that a rank uses

    @property
    def reads(self) -> bool:
        """Whether it is files that they wait for: they read, more than the monitor itself, and have cores left."""
        return self.rate >= 1 << 20 and self.busy < 80


def waiting_hosts(recording: Recording, least: float) -> Iterator[Waiting]:
    """Those whose ranks all wait for at least so many percent of their steps."""
    steps = recording.aligned
    for host, rows in recording.groups.items():
        share = 100 * np.median(steps["input"][rows] / steps["seconds"][rows], axis=1) if steps["step"].size else [0]
        if min(share) >= least:
            used = [_use(recording, recording.ranks[row]) for row in rows]
            yield Waiting(host or None, float(min(share)), *np.median(used, axis=0))


def _use(recording: Recording, rank: int) -> tuple[float, float]:
    samples, facts = recording.while_training(recording.processes[rank]), recording.facts[rank]
    if len(samples["time"]) < 2:
        return 0.0, 0.0
    cpu = np.median(samples["cpu"] + samples["children_cpu"]) * facts["local_size"] / facts["cores"]
    return float(np.ptp(samples["read_bytes"]) / np.ptp(samples["time"])), float(cpu)
