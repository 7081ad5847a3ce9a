from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from smddp_tf.insight.finding import Finding, Rule
from smddp_tf.insight.recording import Recording
from smddp_tf.insight.rules.gpus import GPUS_WAIT, gpu_hosts, percentile


@dataclass(frozen=True)
class LowGPUUtilization(Rule):
    """A GPU is under-used, or its use goes up and down. Source: SageMaker Debugger, developer guide."""

    threshold_p95: float = 70.0
    threshold_p5: float = 10.0
    patience: int = 1000
    window: int = 500

    explained_by: ClassVar[tuple[str, ...]] = (*GPUS_WAIT, "BatchSize")

    def check(self, recording: Recording) -> Iterator[Finding]:
        for host, table in gpu_hosts(recording, self.patience).items():
            for gpu, samples in enumerate(table["gpu"].T):
                p5, p95 = (percentile(samples, percent, self.window) for percent in (5, 95))
                if p95 < self.threshold_p95 or p5 < self.threshold_p5:
                    case = "low" if p95 < self.threshold_p95 else "bursts"
                    yield Finding(1 - float(samples.mean()) / 100, {"gpu": gpu, "p5": p5, "p95": p95}, host, case=case)
