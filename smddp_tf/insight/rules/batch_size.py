from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from smddp_tf.insight.finding import Finding, Rule
from smddp_tf.insight.recording import Recording
from smddp_tf.insight.rules.gpus import GPUS_WAIT, gpu_hosts, percentile


@dataclass(frozen=True)
class BatchSize(Rule):
    """CPU, GPUs and GPU memory are little used. Source: SageMaker Debugger, developer guide."""

    cpu_threshold_p95: float = 70.0
    gpu_threshold_p95: float = 70.0
    gpu_memory_threshold_p95: float = 70.0
    patience: int = 100
    window: int = 500

    explained_by: ClassVar[tuple[str, ...]] = GPUS_WAIT

    def check(self, recording: Recording) -> Iterator[Finding]:
        limits = (self.cpu_threshold_p95, self.gpu_threshold_p95, self.gpu_memory_threshold_p95)
        for host, table in gpu_hosts(recording, self.patience).items():
            used = {"cpu": table["cpu"].mean(1), "gpu": table["gpu"].max(1), "gpu_memory": table["gpu_memory"].max(1)}
            p95 = {name: percentile(samples, 95, self.window) for name, samples in used.items()}
            if all(value < limit for value, limit in zip(p95.values(), limits)):
                yield Finding(1 - float(table["gpu"].mean()) / 100, p95, host)
