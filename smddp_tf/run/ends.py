"""How the ranks ended, and which of them caused the end of the job."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class End:
    """How a rank ended.

    Attributes:
        code: exit code; -N: signal N.
        raised: the exception that ended it, in one line, where it was its own; "" where it said nothing.
        because: its message about the other rank that caused its end; "" where there was none.
    """

    code: int
    raised: str = ""
    because: str = ""

    def encode(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @staticmethod
    def decode(body: bytes) -> End:
        return End(**json.loads(body))

    @property
    def failed(self) -> bool:
        return self.code != 0

    @property
    def is_cause(self) -> bool:
        """It has failed, and reports no other rank as the cause."""
        return self.failed and (bool(self.raised) or not self.because)

    @property
    def shell_code(self) -> int:
        return 128 - self.code if self.code < 0 else self.code


class Ends:
    """The ends reported so far, in their order."""

    def __init__(self) -> None:
        self._by_rank: dict[int, End] = {}

    def __contains__(self, rank: int) -> bool:
        return rank in self._by_rank

    def __len__(self) -> int:
        return len(self._by_rank)

    def __iter__(self) -> Iterator[int]:
        return iter(self._by_rank)

    def add(self, rank: int, end: End) -> bool:
        """True when this is the rank that causes the end of the job, as far as is known."""
        self._by_rank.setdefault(rank, end)
        return end.is_cause and self.first_failed() == (rank, end)

    def first_failed(self) -> tuple[int, End] | None:
        """The first rank that failed by itself; where each says that it was another one, the first that failed."""
        failed = [(rank, end) for rank, end in self._by_rank.items() if end.failed]
        return next(((rank, end) for rank, end in failed if end.is_cause), failed[0] if failed else None)
