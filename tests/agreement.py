"""Ranks tell each other one value and wait for everybody's, but never for ever.

Used by the pytest plugin, so it depends on mpi4py and nothing of ours: it must keep working when what is being tested
does not.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mpi4py import MPI

_TAGS = 30000  # below the 32767 that MPI promises as the least upper bound of tags
_SHORTEST_PAUSE = 20e-6
_LONGEST_PAUSE = 2e-3


class RanksMissing(Exception):
    """Some ranks did not come in time. `ranks` says which."""

    def __init__(self, ranks: list[int]):
        super().__init__(f"rank(s) {', '.join(map(str, ranks))} did not come")
        self.ranks = ranks


class Agreement:
    """Exchanges values between all ranks of a communicator.

    Every rank makes the same calls in the same order. Messages are matched by the number of the call, so a rank that
    is one call ahead cannot be misunderstood. Only one thread may use an object.
    """

    def __init__(self, communicator: MPI.Comm):
        self._communicator = communicator.Dup()
        self._calls = 0
        self.rank: int = communicator.Get_rank()
        self.size: int = communicator.Get_size()

    def exchange(self, value: Any, timeout: float) -> list[Any]:
        """Returns what every rank brought, in rank order.

        Args:
            value: anything that can be pickled.
            timeout: seconds to wait for the others.

        Raises:
            RanksMissing: somebody did not come. The object cannot be used any more.
        """
        self._calls += 1
        tag = self._calls % _TAGS
        others = [peer for peer in range(self.size) if peer != self.rank]
        sends = [self._communicator.isend(value, dest=peer, tag=tag) for peer in others]
        arrived = {self.rank: value}
        give_up_at = time.monotonic() + timeout
        pause = _SHORTEST_PAUSE
        while sends or len(arrived) < self.size:
            before = len(sends) + self.size - len(arrived)
            self._collect([peer for peer in others if peer not in arrived], tag, arrived)
            sends = [send for send in sends if not send.Test()]
            if len(sends) + self.size - len(arrived) < before:
                continue
            if time.monotonic() > give_up_at:
                raise RanksMissing([peer for peer in others if peer not in arrived])
            time.sleep(pause)
            pause = min(pause * 1.5, _LONGEST_PAUSE)
        return [arrived[peer] for peer in range(self.size)]

    def _collect(self, missing: list[int], tag: int, arrived: dict[int, Any]) -> None:
        for peer in missing:
            message = self._communicator.improbe(source=peer, tag=tag)
            if message is not None:
                arrived[peer] = message.recv()
