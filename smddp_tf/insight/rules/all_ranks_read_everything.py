from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from smddp_tf.insight.finding import Finding, NotSeen, Rule
from smddp_tf.insight.recording import Numbers, Recording, Table


@dataclass(frozen=True)
class AllRanksReadEverything(Rule):
    """The ranks of a host read the same files. Ours.

    What one rank has read from storage comes to the others from the page cache, so the ranks together then read as much
    from storage as one of them reads in all. Ranks that read different files read from storage what they read in all.
    """

    least: float = 64.0  # MB from storage
    cached: float = 0.7  # of what a rank reads; where less came from storage, nothing can be told

    def check(self, recording: Recording) -> Iterator[Finding]:
        told = False
        for host in recording.hosts:
            tables = [recording.processes[rank] for rank in recording.on(host)]
            if len(tables) < 2 or not all(table["time"].size for table in tables):
                continue
            storage, read = _while_read_from_storage(tables)
            if storage < 1e6 * self.least or storage < self.cached * max(read):
                continue
            told = True
            totals = [float(np.ptp(table["read_bytes"])) for table in tables]
            if storage < sum(read) * (1 + 1 / len(tables)) / 2 and max(totals) < 1.1 * min(totals):
                figures = {"ranks": len(tables), "each": float(np.mean(totals)) / 1e6, "storage": storage / 1e6}
                yield Finding(0.0, figures, host)
        if not told:
            raise NotSeen("no two ranks of a host read from storage what was not in the page cache")


def _while_read_from_storage(tables: list[Table]) -> tuple[float, list[float]]:
    """Bytes from storage of all ranks, and all bytes of each, when nearly all that comes from storage had come."""
    times = np.unique(np.concatenate([table["time"] for table in tables]))
    storage = np.sum([_since_begin(table, "storage_read_bytes", times) for table in tables], axis=0)
    at = int(np.argmax(storage >= 0.95 * storage[-1]))
    return float(storage[at]), [float(_since_begin(table, "read_bytes", times)[at]) for table in tables]


def _since_begin(table: Table, name: str, times: Numbers) -> Numbers:
    return np.asarray(np.interp(times, table["time"], table[name] - table[name][0]))
