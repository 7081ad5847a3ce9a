"""The ends of the ranks, and the rank that caused the end of the job."""

from __future__ import annotations

import json
from typing import NamedTuple


class End(NamedTuple):
    """The end of a rank.

    Attributes:
        code: exit code; -N: signal N.
        raised: the rank's own exception that ended it, in one line; "" where it reported none.
        because: the rank's message about the other rank that caused its end; "" where it sent none.
        initialized: the rank has called `hvd.init`.
        alone: the rank has loaded TensorFlow, and has not called `hvd.init`.
        speed: of all ranks, for the line at the end of the job; "" where the rank has not measured it.
    """

    code: int
    raised: str = ""
    because: str = ""
    initialized: bool = False
    alone: bool = False
    speed: str = ""

    def encode(self) -> bytes:
        return json.dumps(self._asdict()).encode()

    @staticmethod
    def decode(body: bytes) -> End:
        return End(**json.loads(body))

    @property
    def failed(self) -> bool:
        return self.code != 0

    @property
    def is_cause(self) -> bool:
        """Whether the rank has failed, and reports no other rank as the cause."""
        return self.failed and (bool(self.raised) or not self.because)

    @property
    def shell_code(self) -> int:
        return 128 - self.code if self.code < 0 else self.code


class Ends(dict[int, End]):
    """The ends reported so far by rank, in their order."""

    def add(self, rank: int, end: End) -> bool:
        """True when this is the rank that causes the end of the job, as far as is known."""
        self.setdefault(rank, end)
        return end.is_cause and self.first_failed() == (rank, end)

    def first_failed(self) -> tuple[int, End] | None:
        """The first rank that failed by itself; where each says that it was another one, the first that failed."""
        failed = [(rank, end) for rank, end in self.items() if end.failed]
        return next(((rank, end) for rank, end in failed if end.is_cause), failed[0] if failed else None)
