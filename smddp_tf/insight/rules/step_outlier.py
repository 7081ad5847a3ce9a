from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from smddp_tf.insight.finding import Finding, NotSeen, Rule
from smddp_tf.insight.recording import Numbers, Recording

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
        row = int(np.argmax(steps["own"].std(axis=1)))  # the others wait for it
        seconds = _told_apart(steps["seconds"][row])
        at = np.flatnonzero(seconds > seconds.mean() + self.stddev * seconds.std())
        if len(at) <= self.n_outliers:
            return
        more = {name: np.median(steps[name][row, at]) - np.median(steps[name][row]) for name in _PARTS}
        rank, usual = recording.ranks[row], float(np.median(seconds))
        gaps, times = np.unique(np.diff(steps["step"][at]), return_counts=True)
        yield Finding(
            float((seconds[at] - usual).sum() / seconds.sum()),
            {
                "count": len(at),
                "steps": seconds.size,
                "apart": f", mostly {gaps[times.argmax()]:.0f} apart" if 2 * times.max() > times.sum() else "",
                "long": 1e3 * float(np.median(seconds[at])),
                "usual": 1e3 * usual,
                "part": _PARTS[max(more, key=lambda name: more[name])],
            },
            recording.facts[rank]["host"],
            rank,
            int(steps["step"][at[0]]),
        )


def _told_apart(seconds: Numbers) -> Numbers:
    """Short steps that were noted together have equal shares: what is more than usual is given to the first of them."""
    begins = np.flatnonzero(np.diff(seconds, prepend=-1))
    usual, found = np.median(seconds), np.full_like(seconds, np.median(seconds))
    found[begins] += np.diff(begins, append=seconds.size) * (seconds[begins] - usual)
    return found
