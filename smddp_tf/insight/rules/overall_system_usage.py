from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from smddp_tf.insight.finding import Finding, Rule
from smddp_tf.insight.recording import Recording


@dataclass(frozen=True)
class OverallSystemUsage(Rule):
    """Percentiles of what each host uses; never a finding. Source: SageMaker Debugger, developer guide."""

    def check(self, recording: Recording) -> Iterator[Finding]:
        yield from ()

    def summary(self, recording: Recording) -> dict[str, dict[str, dict[str, float]]]:
        """By host and measure: the 50th, 95th and 99th percentile while it trained."""
        found = {}
        for host, table in recording.hosts.items():
            table = recording.while_training(table)
            used = {
                "CPU %": table["cpu"].mean(1),
                "waiting for disks %": table["iowait"],
                "memory %": 100 * table["memory"] / table["memory_total"],
                "read MB/s": table["disk_read"] / 1e6,
                "sent MB/s": table["sent"] / 1e6,
                **{f"GPU {gpu} %": samples for gpu, samples in enumerate(table["gpu"].T)},
            }
            if table["time"].size:
                found[host] = {
                    name: {f"p{percent}": float(np.nanpercentile(samples, percent)) for percent in (50, 95, 99)}
                    for name, samples in used.items()
                }
        return found
