"""Where the time of training steps goes: from marks of the program, and the engine's counters."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from smddp_tf._native import loader
from smddp_tf.monitor.files import Step

STEPS, SAMPLES, SECONDS, INPUT, REDUCING, EXPOSED = range(6)  # what `sums` adds up
_asking_ns = 0  # what the engine's counters leave out: see `asked_ranks`


class StepTimes:
    """The steps of one loop. Threads: that of the loop; `sums` any."""

    def __init__(self, record: Callable[[Step], None]) -> None:
        self.sums = [0.0] * 6  # over the steps since this was last set to zero
        self._record = record  # gets each step, and numbers it
        self._ended: float | None = None  # when the last step did
        self._before = (0, 0)

    def begin(self) -> float:
        """A step begins; or has done so when the last one ended, unless `pause` was called. Returns the seconds since.

        What the program does between two steps belongs to the later one.
        """
        now = time.perf_counter()
        if self._ended is None:
            self._ended, self._before = now, _counters()
        return now - self._ended

    def end(
        self,
        waited: float,
        samples: int | None,
        epoch: int | None,
        steps: int = 1,
        marks: Sequence[float] = (),
        per_call: int = 1,
    ) -> None:
        """The step ends; or several calls do, whose other times are shared out by the lengths of the steps.

        Args:
            waited, samples: of all of them.
            marks: when all calls but the last one ended, by `time.perf_counter`.
            per_call: the steps of a call, which are equally long. The last call may have fewer, or none.
        """
        now, began, counters = time.perf_counter(), self._ended, _counters()
        if began is None:
            return
        # A new session counts from zero.
        reducing, exposed = (max(0, after - then) / 1e9 for after, then in zip(counters, self._before))
        self._ended, self._before = now, counters
        of_steps = (steps, samples or 0, now - began, waited, reducing, exposed)
        self.sums = [total + more for total, more in zip(self.sums, of_steps)]
        ends = [*marks, now]
        wall = time.time() - now
        for index in range(steps):
            call = min(index // per_call, len(ends) - 1)
            seconds = (ends[call] - [began, *ends][call]) / min(per_call, steps - call * per_call)
            share = seconds / (now - began)
            self._record({
                "step": 0, "epoch": epoch, "time": wall + ends[call], "seconds": seconds, "input": share * waited,
                "reducing": share * reducing, "exposed": share * exposed,
                "samples": None if samples is None else samples // steps + (index < samples % steps),
            })  # fmt: skip

    def pause(self) -> None:
        """Excludes the time from now until `begin` from all steps."""
        self._ended = None


def asked_ranks(began_ns: int) -> None:
    """Counts the time since `began_ns` (`time.perf_counter_ns`) as waiting for gradients.

    For what ranks ask each other after each batch: one that waits there for a late one does not wait for gradients.
    """
    global _asking_ns
    _asking_ns += time.perf_counter_ns() - began_ns


def _counters() -> tuple[int, int]:
    stats = loader.core().stats()
    return stats["reducing_ns"] + _asking_ns, stats["exposed_ns"] + _asking_ns
