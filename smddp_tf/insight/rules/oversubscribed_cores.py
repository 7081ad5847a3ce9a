from dataclasses import dataclass

import numpy as np

from smddp_tf.insight.finding import Finding, NotSeen
from smddp_tf.insight.recording import Recording


@dataclass(frozen=True)
class OversubscribedCores:
    """More threads want to run than the host has cores, and all cores are busy. Ours."""

    threshold: float = 1.5  # runnable threads for each core
    busy: float = 90.0  # percent

    def check(self, recording: Recording) -> list[Finding]:
        found, seen = [], False
        for host, table in recording.hosts.items():
            table = recording.while_training(table)
            if not table["time"].size:
                continue
            seen, cores = True, table["cpu"].shape[1]
            runnable = float(np.median(table["runnable"])) - 1  # one is who counts them
            used = float(np.median(table["cpu"].sum(1)))
            if runnable > self.threshold * cores and used > self.busy * cores:
                ours = sum(_use(recording, rank) for rank, facts in recording.facts.items() if facts["host"] == host)
                found.append(Finding(
                    "There is more to run than there are cores.",
                    f"{runnable:.0f} threads are runnable on {cores} cores. The ranks use {ours / 100:.1f} cores, other "
                    f"programs {max(0.0, used - ours) / 100:.1f}.",
                    "End the other programs." if used - ours > used / 4 else
                    "Use fewer ranks on the host (`-np`, `-H`), or fewer threads in each (TF_NUM_INTRAOP_THREADS, "
                    "OMP_NUM_THREADS).",
                    1 - cores / runnable,
                    host,
                ))  # fmt: skip
        if not seen:
            raise NotSeen("no samples of a host")
        return found


def _use(recording: Recording, rank: int) -> float:
    samples = recording.while_training(recording.processes[rank])
    return float(np.median(samples["cpu"] + samples["children_cpu"])) if samples["time"].size else 0.0
