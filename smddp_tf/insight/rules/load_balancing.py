from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from smddp_tf.insight.finding import Finding, NotSeen, Rule
from smddp_tf.insight.recording import Recording
from smddp_tf.insight.rules.gpus import gpu_hosts


@dataclass(frozen=True)
class LoadBalancing(Rule):
    """GPUs of a host are used differently. Source: SageMaker Debugger, developer guide.

    The guide leaves the distance of two histograms open. Here it is the area between the cumulative ones: 1 between
    always 0 % and always 100 %.
    """

    threshold: float = 0.5
    patience: int = 10

    def check(self, recording: Recording) -> Iterator[Finding]:
        hosts = gpu_hosts(recording, self.patience)
        if max(table["gpu"].shape[1] for table in hosts.values()) < 2:
            raise NotSeen("no host has two GPUs")
        for host, table in hosts.items():
            means, ordered = table["gpu"].mean(0), np.sort(table["gpu"], axis=0)
            least, most = int(np.argmin(means)), int(np.argmax(means))
            low, high = float(means[least]), float(means[most])
            distance = float(np.abs(ordered[:, most] - ordered[:, least]).mean()) / 100
            if distance > self.threshold:
                figures = {"least": least, "most": most, "low": low, "high": high, "distance": distance}
                yield Finding((high - low) / 100, figures, host)
