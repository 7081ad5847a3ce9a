from dataclasses import dataclass

from smddp_tf.insight.finding import Finding
from smddp_tf.insight.recording import Recording
from smddp_tf.insight.rules.gpus import gpu_hosts, percentile


@dataclass(frozen=True)
class BatchSize:
    """CPU, GPUs and GPU memory are little used. Source: SageMaker Debugger, developer guide."""

    cpu_threshold_p95: float = 70.0
    gpu_threshold_p95: float = 70.0
    gpu_memory_threshold_p95: float = 70.0
    patience: int = 100
    window: int = 500

    def check(self, recording: Recording) -> list[Finding]:
        found = []
        for host, table in gpu_hosts(recording, self.patience).items():
            used = {"CPU": table["cpu"].mean(1), "GPU": table["gpu"].max(1), "GPU memory": table["gpu_memory"].max(1)}
            p95 = {name: percentile(samples, 95, self.window) for name, samples in used.items()}
            limits = (self.cpu_threshold_p95, self.gpu_threshold_p95, self.gpu_memory_threshold_p95)
            if all(value < limit for value, limit in zip(p95.values(), limits)):
                found.append(Finding(
                    "The batch is too small for this hardware.",
                    "95th percentiles: " + ", ".join(f"{name} {value:.0f} %" for name, value in p95.items()) + ".",
                    "Use a larger batch on each rank, or fewer ranks; scale the learning rate with it.",
                    1 - float(table["gpu"].mean()) / 100,
                    host,
                ))  # fmt: skip
        return found
