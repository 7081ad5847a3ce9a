from dataclasses import dataclass

from smddp_tf.insight.finding import Finding, NotSeen
from smddp_tf.insight.recording import Recording
from smddp_tf.insight.rules.gpus import gpu_hosts, idle_while
from smddp_tf.insight.rules.waiting import waiting_hosts

_ADVICE = (
    "Read several files at once (`interleave` and `prefetch`), keep data in memory (`dataset.cache()`) or on a local "
    "disk, and compare the storage with what an epoch needs."
)


@dataclass(frozen=True)
class IOBottleneck:
    """GPUs are idle while the CPU waits for disks, or, without GPUs too, ranks wait for the files that they read.

    Source: SageMaker Debugger, developer guide; `waiting` is ours.
    """

    threshold: float = 50.0  # percent of the time
    gpu_threshold: float = 70.0
    io_threshold: float = 50.0
    patience: int = 1000
    waiting: float = 25.0  # percent of the step

    def check(self, recording: Recording) -> list[Finding]:
        found = [
            Finding(
                "The ranks wait for the files that they read.",
                f"Each waits for input during {each.share:.0f} % of its step, or more, reads {each.rate / 1e6:.1f} "
                f"MB/s and uses {each.busy:.0f} % of its cores.",
                _ADVICE,
                each.share / 100,
                each.host,
            )
            for each in waiting_hosts(recording, self.waiting)
            if each.reads
        ]
        return found + [each for each in self._of_gpus(recording) if each.host not in {other.host for other in found}]

    def _of_gpus(self, recording: Recording) -> list[Finding]:
        try:
            hosts = gpu_hosts(recording, self.patience)
        except NotSeen:
            return []
        shares = {
            host: idle_while(table["iowait"] > self.io_threshold, table, self.gpu_threshold)
            for host, table in hosts.items()
        }
        return [
            Finding(
                "The GPUs wait for disks.",
                f"In {share:.0f} % of the samples the GPUs are used below {self.gpu_threshold:g} % and the CPU waits "
                f"for disks more than {self.io_threshold:g} % of the time.",
                _ADVICE,
                share / 100,
                host,
            )
            for host, share in shares.items()
            if share > self.threshold
        ]
