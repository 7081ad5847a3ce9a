"""Rules on single steps, all of them from SageMaker Debugger's developer guide."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from smddp_tf.insight.finding import Finding, Parameters, rule
from smddp_tf.insight.recording import NotSeen, Numbers, Recording

_PARTS = {"input": "waits for input", "computation": "computes", "exposed": "waits for gradients"}


@rule("MaxInitializationTime")
def max_initialization_time(recording: Recording, given: Parameters) -> Iterator[Finding]:
    """The first step ends late: after so many minutes."""
    took, until = {}, {}
    for rank, facts in recording.facts.items():
        until[rank] = float(recording.processes[rank]["time"][-1:].max(initial=facts["first_step"] or 0.0))
        took[rank] = (facts["first_step"] or until[rank]) - facts["started"]
    rank = max(took, key=lambda each: took[each])
    if took[rank] > given.threshold * 60:
        lost = took[rank] / (until[rank] - recording.facts[rank]["started"])
        yield Finding(lost, {"seconds": took[rank]}, recording.facts[rank]["host"], rank)


@rule("StalledTraining")
def stalled_training(recording: Recording, given: Parameters) -> Iterator[Finding]:
    """No step for so many seconds (StalledTrainingRule)."""
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
    if gap > given.threshold:
        step = int(recording.steps[rank]["step"][at])
        yield Finding(gap / whole, {"gap": gap}, recording.facts[rank]["host"], rank, step)


@rule("StepOutlier")
def step_outlier(recording: Recording, given: Parameters) -> Iterator[Finding]:
    """Some steps are much longer than the others. All steps count."""
    steps = recording.aligned
    if steps["step"].size <= given.n_outliers:
        raise NotSeen(f"there are no more than {given.n_outliers} steps")
    row = int(np.argmax(steps["own"].std(axis=1)))  # the others wait for it
    seconds = _told_apart(steps["seconds"][row])
    at = np.flatnonzero(seconds > seconds.mean() + given.stddev * seconds.std())
    if len(at) <= given.n_outliers:
        return
    more = {name: np.median(steps[name][row, at]) - np.median(steps[name][row]) for name in _PARTS}
    rank, usual = recording.ranks[row], float(np.median(seconds))
    gaps, times = np.unique(np.diff(steps["step"][at]), return_counts=True)
    figures = {
        "count": len(at),
        "steps": seconds.size,
        "apart": f", mostly {gaps[times.argmax()]:.0f} apart" if 2 * times.max() > times.sum() else "",
        "long": 1e3 * float(np.median(seconds[at])),
        "usual": 1e3 * usual,
        "part": _PARTS[max(more, key=lambda name: more[name])],
    }
    lost = float((seconds[at] - usual).sum() / seconds.sum())
    yield Finding(lost, figures, recording.facts[rank]["host"], rank, int(steps["step"][at[0]]))


def _told_apart(seconds: Numbers) -> Numbers:
    """Short steps that were noted together have equal shares: what is more than usual is given to the first of them."""
    begins = np.flatnonzero(np.diff(seconds, prepend=-1))
    usual, found = np.median(seconds), np.full_like(seconds, np.median(seconds))
    found[begins] += np.diff(begins, append=seconds.size) * (seconds[begins] - usual)
    return found
