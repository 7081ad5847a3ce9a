"""Hosts all of whose ranks wait for input, and what they do in the meantime."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from smddp_tf.insight.recording import Recording

_ALONE = 0.75  # of the steps with a wait; where it is the same rank that waits alone in more of them, LateRank says so


class Waiting(NamedTuple):
    """Where: a host, or None for all of them. `rate` and `busy` are medians of the ranks."""

    host: str | None
    share: float  # percent of the step, of the rank that waits longest
    rate: float  # MB/s that a rank reads
    busy: float  # percent of its part of the cores that a rank uses

    @property
    def reads(self) -> bool:
        """Whether it is files that they wait for: they read, more than the monitor itself, and have cores left."""
        return self.rate >= 1 and self.busy < 80


def waiting_hosts(recording: Recording, least: float) -> Iterator[Waiting]:
    """Those where somebody's input takes at least so many percent of a step, and not always the same rank's.

    A rank that prepares as slowly as the others may not wait: it does so while it waits for their gradients.
    """
    steps = recording.aligned
    for host, rows in recording.groups.items() if steps["step"].size else ():
        shares = 100 * steps["input"][rows] / steps["seconds"][rows]
        share, waits = float(np.median(shares.max(0))), shares >= least
        alone = (waits & (waits.sum(0) == 1)).sum(1).max() / max(1, waits.any(0).sum())  # the rank that is so most
        if share >= least and (len(rows) == 1 or alone < _ALONE):
            yield Waiting(host or None, share, *np.median([_use(recording, row) for row in rows], axis=0).tolist())


def _use(recording: Recording, row: int) -> tuple[float, float]:
    rank = recording.ranks[row]
    samples, facts = recording.while_training(recording.processes[rank]), recording.facts[rank]
    if samples["time"].size < 2:
        return 0.0, 0.0
    rate = np.ptp(samples["read_bytes"]) / np.ptp(samples["time"]) / 1e6
    return float(rate), recording.cpu_of(rank) * facts["local_size"] / facts["cores"]
