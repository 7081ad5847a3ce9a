from dataclasses import dataclass

import numpy as np

from smddp_tf.insight.finding import Finding
from smddp_tf.insight.recording import Recording


@dataclass(frozen=True)
class OverallSystemUsage:
    """Percentiles of what each host uses; never a finding. Source: SageMaker Debugger, developer guide."""

    def check(self, recording: Recording) -> list[Finding]:
        return []

    def summary(self, recording: Recording) -> dict[str, dict[str, dict[str, float]]]:
        """By host and measure: the 50th, 95th and 99th percentile while it trained."""
        hosts = {host: recording.while_training(table) for host, table in recording.hosts.items()}
        measured = {
            host: {
                "CPU %": table["cpu"].mean(1),
                "waiting for disks %": table["iowait"],
                "runnable": table["runnable"],
                "memory %": 100 * table["memory"] / table["memory_total"],
                "read MB/s": table["disk_read"] / 1e6,
                "sent MB/s": table["sent"] / 1e6,
                **{f"GPU {gpu} %": samples for gpu, samples in enumerate(table["gpu"].T)},
            }
            for host, table in hosts.items()
            if table["time"].size
        }
        return {
            host: {
                name: {f"p{percent}": round(float(np.nanpercentile(samples, percent)), 1) for percent in (50, 95, 99)}
                for name, samples in columns.items()
            }
            for host, columns in measured.items()
        }
