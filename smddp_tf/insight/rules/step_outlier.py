from dataclasses import dataclass

import numpy as np

from smddp_tf.insight.finding import Finding, NotSeen
from smddp_tf.insight.recording import Recording

_PARTS = {"input": "waits for input", "computation": "computes", "exposed": "waits for gradients"}


@dataclass(frozen=True)
class StepOutlier:
    """Some steps are much longer than the others. Source: SageMaker Debugger, developer guide; all steps count."""

    stddev: float = 5.0
    n_outliers: int = 10

    def check(self, recording: Recording) -> list[Finding]:
        steps = recording.aligned
        if steps["step"].size < 2:
            raise NotSeen("no steps")
        longest = steps["seconds"].max(0)
        outliers = np.flatnonzero(longest > longest.mean() + self.stddev * longest.std())
        if len(outliers) <= self.n_outliers:
            return []
        usual = {name: np.median(steps[name], axis=1) for name in ("own", *_PARTS)}
        row = int(np.argmax(np.median(steps["own"][:, outliers], axis=1) - usual["own"]))
        more = {name: np.median(steps[name][row, outliers]) - usual[name][row] for name in _PARTS}
        numbers, excess = steps["step"][outliers], longest[outliers] - np.median(longest)
        apart, times = np.unique(np.diff(numbers), return_counts=True)
        regular = f", mostly {apart[times.argmax()]:.0f} apart" if 2 * times.max() > times.sum() else ""
        return [
            Finding(
                "Some steps take much longer than the others.",
                f"{len(outliers)} of {longest.size} steps, the first one {numbers[0]:.0f}{regular}: "
                f"{1e3 * np.median(longest[outliers]):.0f} ms instead of {1e3 * np.median(longest):.0f} ms. In them "
                f"rank {recording.ranks[row]} {_PARTS[max(more, key=lambda name: more[name])]} longer.",
                "Look for what does not happen in every step: saving, logging, validation, collection of garbage, a "
                "buffer of the input that runs empty, shapes that are traced anew.",
                float(excess.sum() / longest.sum()),
                recording.facts[recording.ranks[row]]["host"],
                recording.ranks[row],
                int(numbers[0]),
            )
        ]
