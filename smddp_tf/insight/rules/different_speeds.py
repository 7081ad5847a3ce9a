from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from smddp_tf.insight.finding import Finding, NotSeen, Rule
from smddp_tf.insight.recording import Recording


@dataclass(frozen=True)
class DifferentSpeeds(Rule):
    """All ranks of a host compute longer than those of the other hosts. Ours."""

    threshold: float = 15.0  # percent

    explained_by: ClassVar[tuple[str, ...]] = ("OversubscribedCores",)

    def check(self, recording: Recording) -> Iterator[Finding]:
        steps, groups = recording.aligned, recording.groups
        if len(groups) < 2 or not steps["step"].size:
            raise NotSeen("it needs steps of two hosts with two ranks each")
        # Of each host's fastest rank: a single slow one is LateRank's.
        takes = {host: float(np.median(steps["computation"][rows], axis=1).min()) for host, rows in groups.items()}
        usual = float(np.percentile(list(takes.values()), 50, method="lower"))
        for host, seconds in takes.items():
            if seconds > usual * (1 + self.threshold / 100):
                lost = (seconds - usual) / float(np.median(steps["seconds"]))
                yield Finding(lost, {"mine": 1e3 * seconds, "others": 1e3 * usual}, host)
