from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from smddp_tf.insight.finding import Finding, NotSeen, Rule
from smddp_tf.insight.recording import Recording


@dataclass(frozen=True)
class StalledTraining(Rule):
    """No step for a long time. Source: SageMaker Debugger, developer guide (StalledTrainingRule)."""

    threshold: float = 1800.0  # seconds

    def check(self, recording: Recording) -> Iterator[Finding]:
        gaps = {}
        for rank in recording.ranks:
            times = recording.steps[rank]["time"]
            if recording.facts[rank]["ended"] is None:
                times = np.append(times, recording.processes[rank]["time"][-1:].max(initial=times[-1]))
            between = np.diff(times, append=times[-1])  # from each step to the next one
            gaps[rank] = (float(between.max()), int(between.argmax()), float(np.ptp(times)))
        if not gaps:
            raise NotSeen("no steps")
        rank = max(gaps, key=lambda each: gaps[each])
        gap, at, whole = gaps[rank]
        if gap > self.threshold:
            step = int(recording.steps[rank]["step"][at])
            yield Finding(gap / whole, {"gap": gap}, recording.facts[rank]["host"], rank, step)
