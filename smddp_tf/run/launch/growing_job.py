"""A job without MPI that goes on without the ranks that it loses, and with ranks on hosts that appear.

The launcher forms a round (`rounds.py`) when all live processes of the last one have joined; those that have started
meanwhile are in it. A process that dies by a signal, or whose host is lost, leaves the job, as long as `Growth.least`
remain. One that ends with another exit code ends the job, if it has been in a round.
"""

from __future__ import annotations

import json
import secrets
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from subprocess import Popen

from smddp_tf.link.channel import Kind
from smddp_tf.link.ends import End
from smddp_tf.link.server import Frame
from smddp_tf.run.hosts.discovery import HostWatch
from smddp_tf.run.hosts.hosts import NotStarted, shortened
from smddp_tf.run.launch import job, rounds, settings
from smddp_tf.run.output.console import say

_LOST_SECONDS = 1.0  # for the last messages of a rank whose connection, or whose starter, has ended
_SILENT_SECONDS = 5.0  # likewise, where the connection seems to be open; and for a rank that others call silent
_MUTE_SECONDS = 2.0  # for an answer of a host's kernel, which has given the ranks none
_ASK_SECONDS = 0.5  # without such an answer, until the host is asked for one
_DISMISS_SECONDS = 2.0  # for processes that have come too late for the last round


class GrowingJob(job.Job):
    """See the module.

    Args:
        words_for: the line that starts ranks on a host, given its name, how many, and the number of the first.
        growth: how many ranks there may be, and where hosts come from.
        around: what it runs in.
    """

    def __init__(
        self, words_for: Callable[[str, int, int], Sequence[str]], growth: settings.Growth, around: job.Surroundings
    ) -> None:
        super().__init__([sys.executable], around)
        self._words_for, self._growth = words_for, growth
        self._rounds = rounds.Rounds(range(len(around.hosts)))
        self._groups: list[tuple[Popen[bytes], range, float]] = []  # a starter, its numbers, and since when
        self._used = Counter(around.hosts)  # slots that have been given out
        self._free_at: dict[str, float] = {}  # when slots of lost ranks are given out again
        self._watch = HostWatch(growth.discover) if growth.discover else None
        self._said_problem = ""
        self._silent: dict[int, float] = {}  # since when
        self._late_at = self._short_at = float("inf")
        self._announced = False  # to rank 0, that processes wait

    def _start_ranks(self) -> None:
        first = 0
        for host, count in self._used.items():
            self._start_on(host, count, first)
            first += count
        if self._watch:
            self._watch.start()

    def _start_on(self, host: str, count: int, first: int) -> None:
        process = self._starters.start(self._words_for(host, count, first))
        self._groups.append((process, range(first, first + count), time.monotonic()))

    def _end(self) -> None:
        if self._watch:
            self._watch.stop()
        super()._end()

    def _outcome_for(self, starter_code: int) -> job.Outcome:
        self._outcome.members = self._rounds.members
        return super()._outcome_for(0 if self._ranks.all_ended else starter_code)

    # --- What the processes tell ---

    def _handle(self, frame: Frame) -> None:
        if frame.kind != Kind.JOIN:
            super()._handle(frame)
            return
        told = json.loads(frame.body)
        number = told.pop("number")
        if number not in self._live():  # its host was lost, and is there again
            self._refuse_one(frame.peer, "The others go on without this process, from which they had not heard.")
        elif frame.peer in self._server.connected:
            address, here = self._server.addresses_of(frame.peer)
            self._rounds.joined[number] = rounds.Joined(frame.peer, address, here, **told)
            if number not in self._rounds.members:
                say(f"process {number} on {told['host']} has started, and joins the others at their next commit.")

    def _take_end(self, rank: int, end: End) -> None:
        if rank in self._ranks.gone:
            return
        self._rounds.joined.pop(rank, None)
        self._free_at[self._ranks.hosts[rank]] = time.monotonic() + self._growth.cool_down
        if rank in self._rounds.members:
            super()._take_end(rank, end)
            return
        self._ranks.gone.add(rank)
        self._output.end_of_rank(rank)
        say(f"process {rank} on {self._ranks.hosts[rank]} {_how(end)} before it had joined; the job goes on.")

    # --- What the launcher looks at, several times a second ---

    def _look_at_ranks(self, is_late: bool) -> None:
        self._look_for_lost()
        if not self._rounds.begun:
            super()._look_at_ranks(is_late)
        live, joined = [n for n in self._rounds.members if n in self._live()], self._rounds.joined
        if not live:
            self._ranks.gone.update(self._live())  # too late for the last round
            self._kill_at = min(self._kill_at, time.monotonic() + _DISMISS_SECONDS)
        elif self._has_failed():
            self._refuse(f"The job ends: {self._why_it_ends()}.")
        else:
            self._look_at_hosts()
            if not any(number in joined for number in live):
                self._announce()
            elif missing := [number for number in live if number not in joined]:
                self._wait_for(missing)
            elif len(joined) >= self._growth.least or self._ranks.ends.first_failed() is None:
                self._begin_round()

    def _live(self) -> list[int]:
        """All processes that have been started and have not ended."""
        return [n for n in range(len(self._ranks.hosts)) if n not in self._ranks.ends and n not in self._ranks.gone]

    def _look_for_lost(self) -> None:
        """A host is lost when its ssh ends, a process when its supervisor's connection does, without a last message."""
        now = time.monotonic()
        exited = {
            n: code for process, numbers, _ in self._groups for n in numbers if (code := process.poll()) is not None
        }
        supervised = set(self._ranks.of_peer.values())
        connected = {n for peer, n in self._ranks.of_peer.items() if peer in self._server.connected}
        mute = self._unanswering(connected & set(self._live()))
        for process, numbers, since in self._groups:
            if now > since + self._start_timeout and self._rounds.begun and not supervised & set(numbers):
                process.terminate()  # it has not started in time
        for number in self._live():
            wait = _MUTE_SECONDS if number in mute else _SILENT_SECONDS if number in connected else _LOST_SECONDS
            if number not in exited.keys() | mute and (number in connected or number not in supervised):
                self._silent.pop(number, None)
            elif now < self._silent.setdefault(number, now) + wait:
                continue
            elif number in supervised:
                self._take_end(number, End(-signal.SIGKILL, "its host, or its supervisor, is lost"))
            elif self._rounds.begun:
                self._take_end(number, End(exited[number] or 1))
            else:
                raise NotStarted(self._ranks.not_started(exited[number] or 0), (self._ranks.hosts[number],))

    def _unanswering(self, numbers: set[int]) -> set[int]:
        """Which of these neither the ranks nor the launcher get an answer of a kernel from; asks them for one."""
        reported, peers = numbers & self._rounds.silent("answer"), self._ranks.of_peer.items()
        mute = {n for peer, n in peers if n in reported and self._server.silence_of(peer) > _ASK_SECONDS}
        self._signal_ranks(0, mute)  # which does nothing to a process
        return mute

    def _has_failed(self) -> bool:
        failed = [end for end in self._ranks.ends.values() if end.failed]
        return bool(failed) and (any(end.code > 0 for end in failed) or self._is_short())

    def _is_short(self) -> bool:
        """Whether fewer ranks are left than the job needs, and no more have come in time."""
        now = time.monotonic()
        if len(self._live()) >= self._growth.least:
            self._short_at = float("inf")
        elif self._short_at == float("inf"):
            self._short_at = now + (self._growth.seconds if self._watch else 0.0)
            if self._watch:
                say(f"waits {self._growth.seconds:g} s for hosts: {self._too_few()}.")
        return now >= self._short_at

    def _too_few(self) -> str:
        return f"of the ranks {len(self._live())} are left, and the job needs {self._growth.least} (--min-np)"

    def _why_it_ends(self) -> str:
        if self._is_short():
            return self._too_few()
        failed = self._ranks.ends.first_failed()
        return f"process {failed[0]} {_how(failed[1])}" if failed else ""

    def _refuse(self, why: str) -> None:
        for one in self._rounds.joined.values():
            self._refuse_one(one.peer, why)
        self._rounds.joined.clear()

    def _refuse_one(self, peer: int, why: str) -> None:
        self._server.send(peer, Kind.PAYLOAD, json.dumps({"error": why}).encode())

    def _wait_for(self, missing: Sequence[int]) -> None:
        """Ends those that the others have not heard from, such as a stopped process; waits for others, for a time."""
        now = time.monotonic()
        self._late_at = min(self._late_at, now + self._start_timeout)
        if now > self._late_at - self._start_timeout + _SILENT_SECONDS:
            self._signal_ranks(signal.SIGKILL, self._rounds.silent().intersection(missing))
        if now > self._late_at:
            host = self._ranks.hosts[missing[0]]
            self._refuse(
                f"Process {shortened(missing)} on {host} has not called hvd.init() within "
                f"{self._start_timeout:g} s (SMDDP_START_TIMEOUT), in which the others wait for it."
            )

    def _look_at_hosts(self) -> None:
        """Starts processes where the answer of the script has slots that have not been given out."""
        if not self._watch or not self._rounds.begun or self._signals.ending:
            return
        if self._watch.problem and self._watch.problem != self._said_problem:
            say(f"the hosts stay as they are: {self._watch.problem}")
        self._said_problem = self._watch.problem
        now, alive = time.monotonic(), Counter(self._ranks.hosts[number] for number in self._live())
        slots = {host.name: host.slots for host in self._watch.hosts or ()}
        room = (self._growth.most or sys.maxsize) - sum(alive.values())
        for host in [*slots, *(set(self._used) - set(slots) if slots else ())]:
            used = min(self._used[host], slots.get(host, 0)) if now < self._free_at.get(host, 0.0) else 0
            self._used[host] = max(alive[host], used)
            if (new := min(slots.get(host, 0) - self._used[host], room)) > 0:
                self._grow(host, new)
                room -= new

    def _grow(self, host: str, count: int) -> None:
        first = len(self._ranks.hosts)
        say(f"starts {count} more rank{'s' * (count > 1)} on {host}.")
        for number in range(first, first + count):
            self._ranks.hosts.append(host)
            self._output.add(number)
        self._used[host] += count
        self._start_on(host, count, first)

    def _announce(self) -> None:
        """Tells rank 0 that processes wait. Those that join until its next commit come with them."""
        self._late_at = float("inf")
        if self._rounds.waiting and not self._announced:
            self._server.send(self._rounds.first_peer, Kind.PAYLOAD, b"{}")
            self._announced = True

    def _begin_round(self) -> None:
        before, nonce = set(self._rounds.members), secrets.token_hex(32)
        lost = {number: end for number, end in self._ranks.ends.items() if end.failed}
        for peer, answer in self._rounds.begin():
            self._server.send(peer, Kind.PAYLOAD, json.dumps({**answer, "nonce": nonce}).encode())
        self._late_at, self._announced = float("inf"), False
        self._ranks.gone.update(lost)
        for number in lost:
            del self._ranks.ends[number]
        members = self._rounds.members
        changes = [f"without process {number}, which {_how(end)}" for number, end in lost.items()]
        changes += [
            f"with process {number} on {self._ranks.hosts[number]}" for number in members if number not in before
        ]
        if changes:
            say(f"goes on with {len(members)} rank{'s' * (len(members) > 1)}: {'; '.join(changes)}.")


def _how(end: End) -> str:
    return f"was killed by signal {-end.code}" if end.code < 0 else f"has ended with exit code {end.code}"
