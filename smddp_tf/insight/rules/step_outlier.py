from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from smddp_tf.insight.finding import Finding, NotSeen, Rule
from smddp_tf.insight.recording import Recording

_PARTS = {"input": "waits for input", "computation": "computes", "exposed": "waits for gradients"}


@dataclass(frozen=True)
class StepOutlier(Rule):
    """Some steps are much longer than the others. Source: SageMaker Debugger, developer guide; all steps count."""

    stddev: float = 5.0
    n_outliers: int = 10

    def check(self, recording: Recording) -> Iterator[Finding]:
        steps = recording.aligned
        if steps["step"].size <= self.n_outliers:
            raise NotSeen(f"there are no more than {self.n_outliers} steps")
        longest = steps["seconds"].max(0)
        at = np.flatnonzero(longest > longest.mean() + self.stddev * longest.std())
        if len(at) <= self.n_outliers:
            return
        more = {name: np.median(steps[name][:, at], 1) - np.median(steps[name], 1) for name in ("own", *_PARTS)}
        row = int(np.argmax(more["own"]))
        rank, usual, excess = recording.ranks[row], np.median(longest), longest[at] - np.median(longest)
        gaps, times = np.unique(np.diff(steps["step"][at]), return_counts=True)
        yield Finding(
            float(excess.sum() / longest.sum()),
            {
                "count": len(at),
                "steps": longest.size,
                "apart": f", mostly {gaps[times.argmax()]:.0f} apart" if 2 * times.max() > times.sum() else "",
                "long": 1e3 * float(np.median(longest[at])),
                "usual": 1e3 * float(usual),
                "part": _PARTS[max(_PARTS, key=lambda name: more[name][row])],
            },
            recording.facts[rank]["host"],
            rank,
            int(steps["step"][at[0]]),
        )
