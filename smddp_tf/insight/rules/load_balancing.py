from dataclasses import dataclass

import numpy as np

from smddp_tf.insight.finding import Finding, NotSeen
from smddp_tf.insight.recording import Recording
from smddp_tf.insight.rules.gpus import gpu_hosts


@dataclass(frozen=True)
class LoadBalancing:
    """GPUs of a host are used differently. Source: SageMaker Debugger, developer guide, which leaves the distance of
    two histograms open: here it is the area between the cumulative ones, of 1 between always 0 % and always 100 %.
    """

    threshold: float = 0.5
    patience: int = 10

    def check(self, recording: Recording) -> list[Finding]:
        found, hosts = [], gpu_hosts(recording, self.patience)
        if max(table["gpu"].shape[1] for table in hosts.values()) < 2:
            raise NotSeen("no host has two GPUs")
        for host, table in hosts.items():
            means = table["gpu"].mean(0)
            least, most = int(np.argmin(means)), int(np.argmax(means))
            ordered = np.sort(table["gpu"], axis=0)
            distance = float(np.abs(ordered[:, most] - ordered[:, least]).mean()) / 100
            if distance > self.threshold:
                found.append(Finding(
                    f"GPU {least} has less to do than GPU {most}.",
                    f"They are used {means[least]:.0f} % and {means[most]:.0f} %; their histograms are {distance:.2f} "
                    "apart.",
                    "Give all ranks batches of the same size and cost (`hvd.data.shard`), and each rank its own GPU.",
                    float(means[most] - means[least]) / 100,
                    host,
                ))  # fmt: skip
        return found
