from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from smddp_tf.insight.finding import Finding, NotSeen, Rule
from smddp_tf.insight.recording import Recording
from smddp_tf.insight.rules.gpus import gpu_hosts


@dataclass(frozen=True)
class GPUMemoryIncrease(Rule):
    """The moving average of a GPU's memory rises. Source: SageMaker Debugger, developer guide."""

    increase: float = 10.0  # percentage points from one window to the next
    patience: int = 100
    window: int = 500

    def check(self, recording: Recording) -> Iterator[Finding]:
        for host, table in gpu_hosts(recording, self.patience).items():
            count = len(table["time"]) // self.window
            if count < 2:
                raise NotSeen(f"it compares two windows of {self.window} samples")
            parts = np.split(table["gpu_memory"][: count * self.window], count)
            means = np.array([part.mean(0) for part in parts])  # windows x GPUs
            at, gpu = np.unravel_index(np.argmax(np.diff(means, axis=0)), (count - 1, means.shape[1]))
            before, after = map(float, means[at : at + 2, gpu])
            if after - before > self.increase:
                yield Finding((after - before) / 100, {"gpu": int(gpu), "before": before, "after": after}, host)
