from dataclasses import dataclass

from smddp_tf.insight.finding import Finding
from smddp_tf.insight.recording import Recording
from smddp_tf.insight.rules.gpus import gpu_hosts, percentile


@dataclass(frozen=True)
class LowGPUUtilization:
    """A GPU is under-used, or its use goes up and down. Source: SageMaker Debugger, developer guide."""

    threshold_p95: float = 70.0
    threshold_p5: float = 10.0
    patience: int = 1000
    window: int = 500

    def check(self, recording: Recording) -> list[Finding]:
        found = []
        for host, table in gpu_hosts(recording, self.patience).items():
            for gpu, samples in enumerate(table["gpu"].T):
                p5, p95 = (percentile(samples, percent, self.window) for percent in (5, 95))
                if p95 < self.threshold_p95 or p5 < self.threshold_p5:
                    found.append(Finding(
                        f"GPU {gpu} is {'under-used' if p95 < self.threshold_p95 else 'used in bursts'}.",
                        f"Its use is {p5:.0f} % at the 5th and {p95:.0f} % at the 95th percentile.",
                        "Use a larger batch; look at the input, computation and waiting of the steps below.",
                        1 - float(samples.mean()) / 100,
                        host,
                    ))  # fmt: skip
        return found
