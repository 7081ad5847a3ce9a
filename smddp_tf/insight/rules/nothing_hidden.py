from dataclasses import dataclass

from smddp_tf.insight.finding import Finding, NotSeen
from smddp_tf.insight.recording import Recording


@dataclass(frozen=True)
class NothingHidden:
    """Gradients are reduced after the computation instead of during it. Ours."""

    threshold: float = 90.0  # percent of the time of reducing
    least: float = 10.0  # percent of the step

    def check(self, recording: Recording) -> list[Finding]:
        sums = {name: recording.aligned[name].sum(1) for name in ("seconds", "reducing", "exposed")}
        if recording.size < 2 or not sums["reducing"].any():
            raise NotSeen("no gradients were reduced between ranks")
        # Of the rank that waits least: the others wait for late ranks too.
        open_ = 100 * float((sums["exposed"] / sums["reducing"]).min())
        share = float((sums["exposed"] / sums["seconds"]).min())
        if open_ < self.threshold or 100 * share < self.least:
            return []
        return [
            Finding(
                "No communication is hidden behind the computation.",
                f"Every rank waits during {open_:.0f} % of the time of reducing, {100 * share:.0f} % of its steps, or "
                "more.",
                "Leave SMDDP_BUCKET_BYTES unset and try `jit_compile=False`: a compiled step hands over all gradients "
                "at its end. Reduce through `DistributedOptimizer` or `DistributedGradientTape`. One variable with "
                "most of the bytes cannot be hidden: `compression=hvd.Compression.bf16` halves it.",
                share,
            )
        ]
