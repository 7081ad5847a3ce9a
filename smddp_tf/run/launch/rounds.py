"""The rounds of a job whose ranks come and go: which processes train together, in which order, and at which addresses.

A process has a number for life, in the order of starting. A round gives it a rank.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from smddp_tf.rendezvous.meeting import endpoint, is_loopback


class Joined(NamedTuple):
    """A process that waits for the next round.

    Attributes:
        peer: its connection.
        address: of its host, as the launcher sees it.
        launcher: address of the launcher's host, as the process sees it.
        host: a text that processes of the same machine share; this and the others are what the process has told.
        port: where it listens.
        has_state: it has trained, or has the state of those that have.
        failure: why its last session has failed; "" where it has not.
    """

    peer: int
    address: str
    launcher: str
    host: str
    port: int
    has_state: bool
    failure: str


class Rounds:
    """The processes of the round, and those that wait for the next one.

    Args:
        numbers: of the processes that the job begins with, which are the first round.

    Attributes:
        members: numbers of the processes of the round, by rank.
        begun: how many rounds there have been.
        first_peer: connection of rank 0, which is told that processes wait.
        joined: those that wait, by number.
    """

    def __init__(self, numbers: Iterable[int]) -> None:
        self.members, self.begun, self.first_peer = list(numbers), 0, -1
        self.joined: dict[int, Joined] = {}

    @property
    def waiting(self) -> list[int]:
        """Those that have joined and are not of the present round."""
        return [number for number in self.joined if number not in self.members]

    def silent(self, what: str = "sign of life|answer") -> set[int]:
        """Members that the engine of another one, which has joined, has not heard from for too long.

        Args:
            what: it has missed; "answer" of whose host, else also of the process.
        """
        texts = (re.search(rf"No (?:{what}) from ranks? ([\d, ]+)", one.failure) for one in self.joined.values())
        ranks = {int(rank) for text in texts if text for rank in re.findall(r"\d+", text[1])}
        return {self.members[rank] for rank in ranks if rank < len(self.members)}

    def begin(self) -> Sequence[tuple[int, dict[str, Any]]]:
        """Makes a round of all that have joined. Returns each one's connection, and what to tell it."""
        order = self._order()
        addresses = self._addresses(order)
        answers = []
        for rank, number in enumerate(order):
            one = self.joined[number]
            here = [other for other in order if self.joined[other].host == one.host]
            place = (rank, len(order), here.index(number), len(here))
            answers.append((one.peer, {"place": place, "addresses": addresses, "members": order}))
        self.members, self.first_peer, self.joined = order, answers[0][0], {}
        self.begun += 1
        return answers

    def _order(self) -> list[int]:
        """Those with the state first, in their order, so that rank 0 has it; those of a host beside one another."""
        ranks = {number: rank for rank, number in enumerate(self.members)}
        order = sorted(self.joined, key=lambda n: (not self.joined[n].has_state, ranks.get(n, len(ranks)), n))
        hosts = list(dict.fromkeys(self.joined[number].host for number in order))
        return sorted(order, key=lambda number: hosts.index(self.joined[number].host))

    def _addresses(self, order: Iterable[int]) -> list[str]:
        """Where each listens. One on the launcher's host may have come by an address that leads there only."""
        away = next((one.launcher for one in self.joined.values() if not is_loopback(one.launcher)), "")
        return [endpoint(one.address, one.port, away or one.address) for one in map(self.joined.__getitem__, order)]
