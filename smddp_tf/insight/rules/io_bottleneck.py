from collections.abc import Iterator
from dataclasses import dataclass

from smddp_tf.insight.finding import Finding, NotSeen, Rule
from smddp_tf.insight.recording import Recording
from smddp_tf.insight.rules.gpus import gpu_hosts, idle_while
from smddp_tf.insight.rules.waiting import waiting_hosts


@dataclass(frozen=True)
class IOBottleneck(Rule):
    """GPUs are idle while the CPU waits for disks, or, without GPUs too, ranks wait for the files that they read.

    Source: SageMaker Debugger, developer guide; `waiting` is ours.
    """

    threshold: float = 50.0  # percent of the time
    gpu_threshold: float = 70.0
    io_threshold: float = 50.0
    patience: int = 1000
    waiting: float = 25.0  # percent of the step

    def check(self, recording: Recording) -> Iterator[Finding]:
        slow = [each for each in waiting_hosts(recording, self.waiting) if each.reads]
        for each in slow:
            yield Finding(each.share / 100, each._asdict(), each.host, case="files")
        try:
            hosts = gpu_hosts(recording, self.patience)
        except NotSeen:
            if not recording.aligned["step"].size:
                raise
            return
        for host, table in hosts.items():
            share = idle_while(table["iowait"] > self.io_threshold, table, self.gpu_threshold)
            if share > self.threshold and not slow:
                yield Finding(share / 100, {"share": share}, host, case="gpu")
