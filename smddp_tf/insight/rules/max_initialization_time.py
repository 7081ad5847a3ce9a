from dataclasses import dataclass

from smddp_tf.insight.finding import Finding
from smddp_tf.insight.recording import Recording


@dataclass(frozen=True)
class MaxInitializationTime:
    """The first step ends late. Source: SageMaker Debugger, developer guide."""

    threshold: float = 20.0  # minutes

    def check(self, recording: Recording) -> list[Finding]:
        took = {}
        for rank, facts in recording.facts.items():
            last = recording.processes[rank]["time"][-1:].max(initial=facts["started"])
            took[rank] = ((facts["first_step"] or last) - facts["started"], last - facts["started"])
        rank = max(took, key=lambda each: took[each])
        seconds, whole = took[rank]
        if seconds <= self.threshold * 60:
            return []
        return [
            Finding(
                "It takes long until the first step has ended.",
                f"{seconds:.0f} s after `hvd.init`; the limit is {self.threshold:g} minutes.",
                "Look at what comes before: copies and lists of files, `cache`, building and compiling of the model "
                "(`jit_compile`), tracing.",
                min(1.0, seconds / max(seconds, whole)),
                recording.facts[rank]["host"],
                rank,
            )
        ]
