from dataclasses import dataclass

import numpy as np

from smddp_tf.insight.finding import Finding, NotSeen
from smddp_tf.insight.recording import Recording


@dataclass(frozen=True)
class DifferentSpeeds:
    """All ranks of a host compute longer than those of the other hosts. Ours."""

    threshold: float = 15.0  # percent

    def check(self, recording: Recording) -> list[Finding]:
        steps, groups = recording.aligned, recording.groups
        if len(groups) < 2 or not steps["step"].size:
            raise NotSeen("it needs steps of two hosts with two ranks each")
        # Of each host's fastest rank: a single slow one is LateRank.
        takes = {host: float(np.median(steps["computation"][rows], axis=1).min()) for host, rows in groups.items()}
        usual = float(np.percentile(list(takes.values()), 50, method="lower"))
        step = float(np.median(steps["seconds"]))
        return [
            Finding(
                "The host computes more slowly than the others.",
                f"Its fastest rank takes {1e3 * seconds:.1f} ms to compute a step, those of the others "
                f"{1e3 * usual:.1f} ms.",
                "Compare its processor, its GPUs, their clocks and temperature, and what else runs there with the "
                "other hosts. Leave it out (`-H`), or use hosts of one kind.",
                (seconds - usual) / step,
                host,
            )
            for host, seconds in takes.items()
            if seconds > usual * (1 + self.threshold / 100)
        ]
