from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from smddp_tf.insight.finding import Finding
from smddp_tf.insight.recording import Recording
from smddp_tf.insight.rules.waiting import waiting_hosts


@dataclass(frozen=True)
class Dataloader:
    """Ranks wait for input that no file delays, or have more loader processes than cores.

    Source: SageMaker Debugger's rule configuration, which compares the loader processes with the cores; `waiting` is
    ours.
    """

    min_threshold: float = 70.0  # loader processes, percent of the cores
    max_threshold: float = 200.0
    waiting: float = 25.0  # percent of the step

    def check(self, recording: Recording) -> list[Finding]:
        return [*self._slow(recording), *self._many(recording)]

    def _slow(self, recording: Recording) -> Iterator[Finding]:
        loaders = _loaders(recording)
        for each in waiting_hosts(recording, self.waiting):
            if not each.reads:
                few = 0 < loaders.get(str(each.host), 0) < self.min_threshold
                yield Finding(
                    "The ranks wait for their input, which is prepared too slowly.",
                    f"Each waits for input during {each.share:.0f} % of its step, or more, uses {each.busy:.0f} % of "
                    f"its cores and reads {each.rate / 1e6:.1f} MB/s.",
                    "Keep what is prepared (`dataset.cache()`) or prepare it beforehand."
                    if each.busy >= 80
                    else "Use more `workers`."
                    if few
                    else "Prepare several elements at once: `map(..., num_parallel_calls=tf.data.AUTOTUNE)` and "
                    "`prefetch`, with SMDDP_DATA_AUTOTUNE=1; look for what `map` waits for.",
                    each.share / 100,
                    each.host,
                )

    def _many(self, recording: Recording) -> Iterator[Finding]:
        for host, percent in _loaders(recording).items():
            if percent > self.max_threshold:
                yield Finding(
                    "There are more loader processes than cores.",
                    f"The ranks have {percent:.0f} % as many child processes as the host has cores.",
                    "Use fewer `workers` on each rank.",
                    1 - 100 / percent,
                    host,
                )


def _loaders(recording: Recording) -> dict[str, float]:
    """The child processes of a host's ranks, in percent of its cores."""
    found: dict[str, float] = {}
    for rank, facts in recording.facts.items():
        children = recording.while_training(recording.processes[rank])["children"]
        percent = 100 * float(np.median(children)) / facts["cores"] if children.size else 0.0
        found[facts["host"]] = found.get(facts["host"], 0.0) + percent
    return found
