"""An error that one step of a training raises, once."""

from __future__ import annotations


class Once:
    """Raises what it is given, the first time that it comes to `step`."""

    def __init__(self, step: int, error: BaseException | None) -> None:
        self.step, self.error, self.seen = step, error, []

    def __call__(self, step: int) -> None:
        self.seen.append(step)
        if step == self.step and self.error is not None:
            error, self.error = self.error, None
            raise error
