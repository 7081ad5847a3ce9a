from collections.abc import Iterator
from dataclasses import dataclass

from smddp_tf.insight.finding import Finding, Rule
from smddp_tf.insight.recording import Recording


@dataclass(frozen=True)
class MaxInitializationTime(Rule):
    """The first step ends late. Source: SageMaker Debugger, developer guide."""

    threshold: float = 20.0  # minutes

    def check(self, recording: Recording) -> Iterator[Finding]:
        took, until = {}, {}
        for rank, facts in recording.facts.items():
            until[rank] = float(recording.processes[rank]["time"][-1:].max(initial=facts["first_step"] or 0.0))
            took[rank] = (facts["first_step"] or until[rank]) - facts["started"]
        rank = max(took, key=lambda each: took[each])
        if took[rank] > self.threshold * 60:
            lost = took[rank] / (until[rank] - recording.facts[rank]["started"])
            yield Finding(lost, {"seconds": took[rank]}, recording.facts[rank]["host"], rank)
