from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from smddp_tf.insight.finding import Finding, Rule
from smddp_tf.insight.recording import Recording
from smddp_tf.insight.rules.waiting import waiting_hosts


@dataclass(frozen=True)
class Dataloader(Rule):
    """Ranks wait for input, but not for files, or have more loader processes than cores.

    Source: SageMaker Debugger's rule configuration, which compares the loader processes with the cores; `waiting` is
    ours.
    """

    min_threshold: float = 70.0  # loader processes, percent of the cores
    max_threshold: float = 200.0
    waiting: float = 25.0  # percent of the step

    def check(self, recording: Recording) -> Iterator[Finding]:
        loaders = {host: _loaders(recording, host) for host in recording.hosts}
        for each in waiting_hosts(recording, self.waiting):
            most = max((n for host, n in loaders.items() if each.host in (host, None)), default=0.0)
            case = "busy" if each.busy >= 80 else "few" if 0 < most < self.min_threshold else "idle"
            if not each.reads:
                yield Finding(each.share / 100, {**each._asdict(), "loaders": most}, each.host, case=case)
        for host, percent in loaders.items():
            if percent > self.max_threshold:
                yield Finding(1 - 100 / percent, {"loaders": percent}, host, case="processes")


def _loaders(recording: Recording, host: str) -> float:
    """The child processes of the host's ranks, in percent of its cores."""
    found = 0.0
    for rank in recording.on(host):
        children = recording.while_training(recording.processes[rank])["children"]
        found += 100 * float(np.median(children)) / recording.facts[rank]["cores"] if children.size else 0.0
    return found
