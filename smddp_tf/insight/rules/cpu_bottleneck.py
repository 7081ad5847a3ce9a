from collections.abc import Iterator
from dataclasses import dataclass

from smddp_tf.insight.finding import Finding, Rule
from smddp_tf.insight.recording import Recording
from smddp_tf.insight.rules.gpus import gpu_hosts, idle_while


@dataclass(frozen=True)
class CPUBottleneck(Rule):
    """GPUs are idle while the CPU is busy. Source: SageMaker Debugger, developer guide."""

    threshold: float = 50.0  # percent of the time
    gpu_threshold: float = 10.0
    cpu_threshold: float = 90.0
    patience: int = 100

    def check(self, recording: Recording) -> Iterator[Finding]:
        for host, table in gpu_hosts(recording, self.patience).items():
            share = idle_while(table["cpu"].mean(1) > self.cpu_threshold, table, self.gpu_threshold)
            if share > self.threshold:
                yield Finding(share / 100, {"share": share}, host)
