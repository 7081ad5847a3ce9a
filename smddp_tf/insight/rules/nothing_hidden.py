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
        seconds, reducing, exposed = (recording.sums[name] for name in ("seconds", "reducing", "exposed"))
        if recording.size < 2 or not reducing.any():
            raise NotSeen("no gradients were reduced between ranks")
        # Of the rank that waits least: the others wait for late ranks too.
        open_, share = 100 * float((exposed / reducing).min()), 100 * float((exposed / seconds).min())
        if open_ >= self.threshold and share >= self.least:
            yield Finding(share / 100, {"open": open_, "share": share})
