from dataclasses import dataclass

import numpy as np

from smddp_tf.insight.finding import Finding, NotSeen
from smddp_tf.insight.recording import Recording


@dataclass(frozen=True)
class StalledTraining:
    """No step for a long time. Source: SageMaker Debugger, developer guide (StalledTrainingRule)."""

    threshold: float = 1800.0  # seconds

    def check(self, recording: Recording) -> list[Finding]:
        gaps = {}
        for rank in recording.ranks:
            times, sampled = recording.steps[rank]["time"], recording.processes[rank]["time"]
            over = recording.facts[rank]["ended"] is not None
            times = times if over else np.append(times, sampled[-1:].max(initial=times[-1]))
            between = np.diff(times, prepend=times[0])
            at = int(between.argmax())
            gaps[rank] = (float(between[at]), int(recording.steps[rank]["step"][at - 1]), np.ptp(times))
        if not gaps:
            raise NotSeen("no steps")
        rank = max(gaps, key=lambda each: gaps[each])
        gap, step, whole = gaps[rank]
        if gap <= self.threshold:
            return []
        return [
            Finding(
                "Training stood still.",
                f"No step ended for {gap:.0f} s after step {step}; the limit is {self.threshold:g} s.",
                "SMDDP_STALL_STACKS=1 shows where each rank is; SMDDP_STALL_ERROR_SECONDS ends a job in which ranks "
                "are missing.",
                gap / float(whole),
                recording.facts[rank]["host"],
                rank,
                step,
            )
        ]
