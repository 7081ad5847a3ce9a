"""Hosts all of whose ranks wait for input, and what they do in the meantime."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from smddp_tf.insight.recording import Recording
from smddp_tf.insight.rules.spans import Span, blocks, longest_run

_ALONE = 0.75  # of the steps with a wait; where it is the same rank that waits alone in more of them, LateRank says so
_IN_A_ROW = 0.8  # of the blocks with a wait; where fewer follow each other, what is said is of all steps


class Waiting(NamedTuple):
    """Where: a host, or None for all of them; for how much of the job's time; and the figures of a finding.

    The figures are `share`, percent of a step, of the rank that waits longest; `when`, the steps that they are of; the
    medians of the ranks there: `rate`, MB/s that one reads, `disks`, MB/s of that which come from disks, and `busy`,
    percent of its part of the cores that it uses.
    """

    host: str | None
    lost: float
    figures: dict[str, Any]

    @property
    def reads(self) -> bool:
        """Whether the ranks wait for files: they read more than the monitor itself does, and have idle cores."""
        return bool(self.figures["rate"] >= 1 and self.figures["busy"] < 80)


def waiting_hosts(recording: Recording, least: float) -> Iterator[Waiting]:
    """Yields the hosts on which a rank's input takes at least `least` percent of a step, not always the same rank's.

    A rank that prepares as slowly as the others may not wait: it does so while it waits for their gradients.
    """
    steps = recording.aligned
    for host, rows in recording.groups.items() if steps["step"].size else ():
        shares = 100 * steps["input"][rows] / steps["seconds"][rows]
        most, waits = shares.max(0), shares >= least
        alone = (waits & (waits.sum(0) == 1)).sum(1).max() / max(1, waits.any(0).sum())  # the rank that is so most
        if np.median(most) >= least and (len(rows) == 1 or alone < _ALONE):
            span, when = _when(recording, blocks(most) >= least)
            share = float(np.median(most[span]))
            rate, disks, busy = np.median([_use(recording, row, span) for row in rows], axis=0).tolist()
            figures = {"share": share, **when, "rate": rate, "disks": min(disks, rate), "busy": busy}
            yield Waiting(host or None, share / 100 * most[span].size / most.size, figures)


def _when(recording: Recording, waits: np.ndarray) -> tuple[slice, dict[str, Any]]:
    """Returns the consecutive steps in which ranks wait, as indices and in words; all steps where there are none."""
    span = longest_run(waits)
    if span.first == span.end or waits[span.blocks].sum() < _IN_A_ROW * waits.sum():
        when = {"since": None, "until": None, "when": "in the median of all steps"}
        return Span(0, span.total, span.total).steps, when
    return span.steps, span.figures(recording.aligned["step"])


def _use(recording: Recording, row: int, steps: slice) -> tuple[float, float, float]:
    rank = recording.ranks[row]
    samples, facts = recording.while_training(recording.processes[rank], steps), recording.facts[rank]
    if samples["time"].size < 2:
        return 0.0, 0.0, 0.0
    seconds = np.ptp(samples["time"])
    read, stored = (float(np.ptp(samples[name]) / seconds / 1e6) for name in ("read_bytes", "storage_read_bytes"))
    return read, stored, recording.cpu_of(rank, steps) * facts["local_size"] / facts["cores"]
