from dataclasses import dataclass

from smddp_tf.insight.finding import Finding
from smddp_tf.insight.recording import Recording
from smddp_tf.insight.rules.gpus import gpu_hosts, idle_while


@dataclass(frozen=True)
class CPUBottleneck:
    """GPUs are idle while the CPU is busy. Source: SageMaker Debugger, developer guide."""

    threshold: float = 50.0  # percent of the time
    gpu_threshold: float = 10.0
    cpu_threshold: float = 90.0
    patience: int = 100

    def check(self, recording: Recording) -> list[Finding]:
        hosts = gpu_hosts(recording, self.patience)
        shares = {
            host: idle_while(table["cpu"].mean(1) > self.cpu_threshold, table, self.gpu_threshold)
            for host, table in hosts.items()
        }
        return [
            Finding(
                "The GPUs wait for the CPU.",
                f"In {share:.0f} % of the samples the GPUs are used below {self.gpu_threshold:g} % and the CPU above "
                f"{self.cpu_threshold:g} %.",
                "Prepare the data beforehand, keep what is prepared (`dataset.cache()`), or prepare it on the GPU.",
                share / 100,
                host,
            )
            for host, share in shares.items()
            if share > self.threshold
        ]
