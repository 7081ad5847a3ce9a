from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from smddp_tf.insight.finding import Finding, NotSeen, Rule
from smddp_tf.insight.recording import Recording


@dataclass(frozen=True)
class OversubscribedCores(Rule):
    """More threads want to run than the host has cores, and all cores are busy. Ours."""

    threshold: float = 1.5  # runnable threads for each core
    busy: float = 90.0  # percent

    def check(self, recording: Recording) -> Iterator[Finding]:
        hosts = {host: recording.while_training(table) for host, table in recording.hosts.items()}
        hosts = {host: table for host, table in hosts.items() if table["time"].size}
        if not hosts:
            raise NotSeen("no samples of a host")
        for host, table in hosts.items():
            cores, used = table["cpu"].shape[1], float(np.median(table["cpu"].sum(1)))
            runnable = float(np.median(table["runnable"])) - 1  # one is who counts them
            if runnable > self.threshold * cores and used > self.busy * cores:
                ours = sum(recording.cpu_of(rank) for rank in recording.on(host))
                others = max(0.0, used - ours)
                figures = {"runnable": runnable, "cores": cores, "ours": ours / 100, "others": others / 100}
                yield Finding(1 - cores / runnable, figures, host, case="others" if others > used / 4 else "ranks")
