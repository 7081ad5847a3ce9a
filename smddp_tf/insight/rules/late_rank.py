from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from smddp_tf.insight.finding import Finding, NotSeen, Rule
from smddp_tf.insight.recording import Numbers, Recording
from smddp_tf.insight.rules.waiting import waiting_hosts

_BLOCK = 10  # steps that are looked at together


@dataclass(frozen=True)
class LateRank(Rule):
    """A rank takes longer than the others on equal hosts, which wait for its gradients. Ours."""

    threshold: float = 15.0  # percent of the step
    patience: int = 30  # steps
    least: float = 5.0  # percent of the job's time
    waiting: float = 25.0  # percent of the step; where all ranks wait so long for input in turn, none of them is late

    def check(self, recording: Recording) -> Iterator[Finding]:
        groups = [rows for rows in recording.groups.values() if len(rows) > 1]
        if not groups or recording.aligned["step"].size < self.patience:
            raise NotSeen(f"it needs {self.patience} steps of two ranks on equal hosts")
        for rows in groups:
            for place in range(len(rows)):
                yield from self._of(recording, rows, place)

    def _of(self, recording: Recording, rows: list[int], place: int) -> Iterator[Finding]:
        """The one in this place of the rows, if it is late."""
        names = ("own", "input", "computation", "seconds")
        steps = {name: _blocks(recording.aligned[name][rows], np.median) for name in names}
        steps["exposed"] = _blocks(recording.aligned["exposed"][rows], np.mean)  # not every step reduces gradients
        seconds = steps["seconds"][place]
        excess = steps["own"][place] - np.percentile(steps["own"], 50, axis=0, method="lower")
        others_wait = np.delete(steps["exposed"], place, axis=0).max(0) > steps["exposed"][place]
        first, end = _longest_run((excess > self.threshold / 100 * seconds) & others_wait)
        lost = float(excess[first:end].sum() / seconds.sum())
        if (end - first) * _BLOCK < self.patience or 100 * lost < self.least:
            return
        mine = {name: float(np.median(blocks[place, first:end])) for name, blocks in steps.items()}
        rest = {name: float(np.median(np.delete(b[:, first:end], place, axis=0))) for name, b in steps.items()}
        rank = recording.ranks[rows[place]]
        host = recording.facts[rank]["host"]
        part = max(("input", "computation"), key=lambda name: mine[name] - rest[name])
        if part == "input" and any(each.host in (host, None) for each in waiting_hosts(recording, self.waiting)):
            return
        numbers = recording.aligned["step"][::_BLOCK].astype(int)
        figures = {"mine": mine[part], "others": rest[part], "wait": rest["exposed"], "exposed": mine["exposed"]}
        until = "the end" if end == seconds.size else f"step {numbers[end]}"
        yield Finding(
            lost,
            {"until": until, **{name: 1e3 * value for name, value in figures.items()}},
            host,
            rank,
            int(numbers[first]),
            part,
        )


def _blocks(column: Numbers, of: Callable[..., Any]) -> Numbers:
    count = column.shape[1] // _BLOCK
    return np.asarray(of(column[:, : count * _BLOCK].reshape(len(column), count, _BLOCK), axis=2))


def _longest_run(late: Numbers) -> tuple[int, int]:
    """Its first block and the one after its last; a single block that is not late does not end it."""
    closed = np.concatenate([[False], late, [False]])
    closed[1:-1] |= closed[:-2] & closed[2:]
    edges = np.flatnonzero(np.diff(closed.astype(int))).reshape(-1, 2).tolist()
    first, end = max(edges, key=lambda edge: edge[1] - edge[0], default=(0, 0))
    return first, end
