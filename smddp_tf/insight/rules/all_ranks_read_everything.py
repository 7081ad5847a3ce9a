from dataclasses import dataclass

import numpy as np

from smddp_tf.insight.finding import Finding, NotSeen
from smddp_tf.insight.recording import Recording, Table


@dataclass(frozen=True)
class AllRanksReadEverything:
    """The ranks of a host read the same files. Ours.

    Files that one rank has read come to the others from the page cache: together the ranks then read as much from
    storage as one of them reads in all. Ranks with files of their own read as much from storage as all of them in all.
    """

    least: float = 64e6  # bytes from storage
    cached: float = 0.7  # of a rank's bytes; where less came from storage, nothing can be told

    def check(self, recording: Recording) -> list[Finding]:
        found, told = [], False
        for host, rows in recording.groups.items():
            tables = [recording.processes[recording.ranks[row]] for row in rows]
            if not host or len(rows) < 2 or not all(table["time"].size for table in tables):
                continue
            storage, read = _until_all_is_cached(tables)
            if storage < self.least or storage < self.cached * min(read):
                continue
            told = True
            if storage < np.mean(read) * (1 + len(rows)) / 2 and max(read) < 1.1 * min(read):
                found.append(Finding(
                    "All ranks of the host read the same files.",
                    f"Each of {len(rows)} ranks has read {np.mean(read) / 1e6:.0f} MB, but all of them together "
                    f"{storage / 1e6:.0f} MB from storage: the rest came from the page cache.",
                    'Let each rank read its part of the files: `hvd.data.shard(dataset, by="file")`.',
                    float(np.median(recording.aligned["input"][rows] / recording.aligned["seconds"][rows])),
                    host,
                ))  # fmt: skip
        if not told:
            raise NotSeen("no two ranks of a host read from storage what was not in the page cache")
        return found


def _until_all_is_cached(tables: list[Table]) -> tuple[float, list[float]]:
    """Bytes from storage of all ranks, and bytes of each, when nearly all that comes from storage had come."""
    times = np.unique(np.concatenate([table["time"] for table in tables]))
    storage = sum(np.interp(times, table["time"], table["storage_read_bytes"]) for table in tables)
    at = int(np.argmax(storage >= 0.95 * storage[-1]))
    return float(storage[at]), [float(np.interp(times[at], table["time"], table["read_bytes"])) for table in tables]
