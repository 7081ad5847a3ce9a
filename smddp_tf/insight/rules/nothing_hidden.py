from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from smddp_tf.insight.finding import Finding, NotSeen, Rule
from smddp_tf.insight.recording import Recording


@dataclass(frozen=True)
class NothingHidden(Rule):
    """Gradients are reduced after the computation instead of during it. Ours."""

    threshold: float = 90.0  # percent of the time of reducing
    least: float = 10.0  # percent of the step

    explained_by: ClassVar[tuple[str, ...]] = ("SlowLink",)

    def check(self, recording: Recording) -> Iterator[Finding]:
        if recording.size < 2:
            raise NotSeen("there is one rank")
        open_, share = (100 * value for value in recording.communication)
        if open_ >= self.threshold and share >= self.least:
            yield Finding(share / 100, {"open": open_, "share": share})
