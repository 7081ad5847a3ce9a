from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from smddp_tf.insight.finding import Finding, NotSeen
from smddp_tf.insight.recording import Numbers, Recording, Table

_BLOCK = 10  # steps that are looked at together


@dataclass(frozen=True)
class LateRank:
    """A rank takes longer than the others on equal hosts, which wait for its gradients. Ours."""

    threshold: float = 15.0  # percent of the step
    patience: int = 30  # steps

    def check(self, recording: Recording) -> list[Finding]:
        groups = [rows for rows in recording.groups.values() if len(rows) > 1]
        if not groups or recording.aligned["step"].size < self.patience:
            raise NotSeen(f"it needs {self.patience} steps of two ranks on equal hosts")
        return [found for rows in groups for found in self._of(recording, rows)]

    def _of(self, recording: Recording, rows: list[int]) -> Iterator[Finding]:
        names = ("own", "input", "computation", "exposed", "seconds")
        steps = {name: _blocks(recording.aligned[name][rows]) for name in names}
        usual = np.percentile(steps["own"], 50, axis=0, method="lower")
        for row, own in enumerate(steps["own"]):
            others_wait = np.delete(steps["exposed"], row, axis=0).max(0) > steps["exposed"][row]
            late = (own - usual > self.threshold / 100 * steps["seconds"][row]) & others_wait
            first, end = _longest_run(late)
            if (end - first) * _BLOCK >= self.patience:
                over = {name: np.median(blocks[:, first:end], axis=1) for name, blocks in steps.items()}
                lost = float((own - usual)[first:end].sum() / steps["seconds"][row].sum())
                numbers = recording.aligned["step"][: late.size * _BLOCK : _BLOCK].astype(int)
                until = "the end" if end == late.size else f"step {numbers[end]}"
                yield _finding(recording, recording.ranks[rows[row]], row, over, lost, numbers[first], until)


def _finding(
    recording: Recording, rank: int, row: int, over: Table, lost: float, since: int, until: str
) -> Finding:  # fmt: skip
    more = {name: over[name][row] - np.median(np.delete(over[name], row)) for name in ("input", "computation")}
    name = "input" if more["input"] > more["computation"] else "computation"
    mine, others = 1e3 * over[name][row], 1e3 * np.median(np.delete(over[name], row))
    waits = 1e3 * np.median(np.delete(over["exposed"], row))
    return Finding(
        f"Rank {rank} is late: it {'waits for input' if name == 'input' else 'computes'} longer than the others.",
        f"From step {since} to {until}: {mine:.1f} ms a step, the others {others:.1f} ms. They wait {waits:.1f} ms for "
        f"gradients, rank {rank} {1e3 * over['exposed'][row]:.1f} ms.",
        "Compare its files and what `map` does with the other ranks' (`hvd.data.shard`)."
        if name == "input"
        else "Give all ranks batches of the same cost; look for other programs on its cores, its binding "
        "(`--binding-args`), its GPU's clock, and for what only this rank does (logging, saving).",
        lost,
        recording.facts[rank]["host"],
        rank,
        int(since),
    )


def _blocks(column: Numbers) -> Numbers:
    count = column.shape[1] // _BLOCK
    medians: Numbers = np.median(column[:, : count * _BLOCK].reshape(len(column), count, _BLOCK), axis=2)
    return medians


def _longest_run(late: Numbers) -> tuple[int, int]:
    """Its first block and the one after its last; a single block that is not late does not end it."""
    closed = np.concatenate([[False], late, [False]])
    closed[1:-1] |= closed[:-2] & closed[2:]
    edges = np.flatnonzero(np.diff(closed.astype(int))).reshape(-1, 2)
    first, end = max(edges, key=lambda edge: int(np.ptp(edge)), default=(0, 0))
    return int(first), int(end)
