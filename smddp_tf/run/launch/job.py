"""Runs a job: starts mpirun, listens to the ranks, and cleans up however the job ends."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import threading
import time
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from smddp_tf.link.channel import ADDRESS, KEY, Kind
from smddp_tf.link.ends import End
from smddp_tf.link.server import ControlServer, Frame
from smddp_tf.run.launch.rank_states import RankStates
from smddp_tf.run.launch.signals import LauncherSignals
from smddp_tf.run.launch.starting import OUTPUTS, Starters
from smddp_tf.run.output.console import MPIRUN, say
from smddp_tf.run.output.output import Output

_TERM_SECONDS = 10.0  # from SIGTERM to SIGKILL
_OTHERS_SECONDS = 8.0  # for mpirun to end the other ranks of a failed one: it waits forever for an unreachable host
_LOST_TERM_SECONDS = 3.0  # from SIGTERM to SIGKILL after a rank has failed
_NO_START_TERM_SECONDS = 0.5  # likewise, where ranks did not start in time: mpirun waits for its ssh
_LAST_OUTPUT_SECONDS = 3.0  # without a message from any rank after mpirun has ended
_LOST_OUTPUT_SECONDS = 0.5  # likewise, after a signal to end
_INPUT = 102  # kind of frame: standard input


@dataclass
class Outcome:
    """The end of a job.

    Attributes:
        code: exit code for the shell: the one of the rank that caused the end of the job.
        failed_rank: that rank, or None.
        failed_host: its host.
        end: how `failed_rank` ended, as it reported; without such a rank, how rank 0 did.
        results: the message that each rank sent back, by rank, in the order of arrival.
        members: numbers of the processes of the last round, by rank; of a job whose ranks do not change: none.
        interrupted: whether a signal to the launcher ended the job.
        lost_hosts: hosts none of whose ranks reported its end, while ranks of other hosts did.
        report: what is printed about the failed rank.
        apart: whether several ranks have loaded TensorFlow, and none has called `hvd.init`.
    """

    code: int = 0
    failed_rank: int | None = None
    failed_host: str = ""
    end: End = field(default_factory=lambda: End(0))
    results: dict[int, bytes] = field(default_factory=dict)
    members: Sequence[int] = ()
    interrupted: bool = False
    lost_hosts: frozenset[str] = frozenset()
    apart: bool = False
    report: str = ""


class Surroundings(NamedTuple):
    """What a job runs in.

    Attributes:
        environment: of mpirun, or of the lines that start ranks.
        hosts: the host of each rank, or of each process that the job begins with.
        server: the server to which the ranks connect.
        output: prints the ranks' lines.
        start_timeout: seconds within which all ranks must have connected, and a round must have been joined.
        payload: the reply to a process that requests its task.
    """

    environment: Mapping[str, str]
    hosts: Sequence[str]
    server: ControlServer
    output: Output
    start_timeout: float
    payload: bytes = b""


class Job:
    """One job, to be run once.

    Args:
        words: mpirun's command line, including the ranks' command.
        around: what it runs in.
    """

    def __init__(self, words: Sequence[str], around: Surroundings) -> None:
        self._words, self._server, self._output = list(words), around.server, around.output
        self._start_timeout, self._payload = around.start_timeout, around.payload
        variables = {**around.environment, ADDRESS: self._server.addresses, KEY: self._server.key}
        self._starters = Starters(variables, self._server)
        self._task_of: dict[int, int] = {}  # by peer, of processes that run a function
        self._ranks, self._outcome, self._signals = RankStates(around.hosts), Outcome(), LauncherSignals()
        read, write = os.pipe()
        self._input = os.fdopen(read, "rb", 0), os.fdopen(write, "wb", 0)
        self._sent_sigterm = self._sent_end = False  # to the ranks: the signal; the message that all have ended
        self._kill_at = float("inf")
        self._signalled = False  # mpirun has been sent a signal

    def run(self) -> Outcome:
        """Runs the job until it has ended.

        Returns:
            How it ended.

        Raises:
            LaunchError: mpirun could not be started, or not all ranks connected in time.
        """
        with self._signals.taken():
            try:
                self._start_ranks()
                self._server.listen_to(self._input[0].fileno(), _INPUT)
                self._listen()
            finally:
                self._end()
        return self._outcome_for(self._starters.poll() or 0)

    def _start_ranks(self) -> None:
        self._starters.start(self._words)

    def _read_input(self) -> None:
        """Sends `_handle` the next chunk of standard input, or an empty one at its end.

        Of a terminal also an empty one: a background process that reads a terminal is stopped.
        """
        chunk = b""
        with contextlib.suppress(OSError):  # it is closed, or cannot be read under nohup
            chunk = b"" if os.isatty(0) else os.read(0, select.PIPE_BUF)
        with contextlib.suppress(ValueError):  # the job has ended, and has closed the pipe
            self._input[1].write(chunk) if chunk else self._input[1].close()

    def _listen(self) -> None:
        """Returns when mpirun has ended and all messages of the ranks have been received and printed."""
        start_until = time.monotonic() + self._start_timeout
        silent_until = None  # once mpirun has ended
        while True:
            count = 0
            for frame in self._server.frames(0.01 if self._ranks.all_ended else 0.1):
                self._handle(frame)
                count += 1
            self._output.look_around()
            if silent_until is None:
                self._stop_if_asked()
                if self._starters.poll() is None:
                    self._look_at_ranks(time.monotonic() > start_until)
                    continue
                self._server.end_ranks()
            elif not count and (not self._server.connected or self._signals.ending or time.monotonic() > silent_until):
                return
            if count or silent_until is None:
                silent_until = time.monotonic() + (_LOST_OUTPUT_SECONDS if self._signalled else _LAST_OUTPUT_SECONDS)

    def _look_at_ranks(self, is_late: bool) -> None:
        """Raises NotStarted where ranks have not started in time, or others wait in `hvd.init` for them in vain."""
        if not self._ranks.all_started and is_late:
            raise self._ranks.too_late(self._start_timeout, self._words[0])
        if late := self._ranks.late_for_init():
            say(late)
        self._ranks.check_init()

    def _has_failed(self) -> bool:
        """Whether a rank has ended in a way that ends the job."""
        return self._ranks.ends.first_failed() is not None

    def _stop_if_asked(self) -> None:
        """Forwards the launcher's signals to the ranks, and signals mpirun if the ranks, or mpirun, do not end.

        mpirun is not sent SIGTERM earlier, because it kills the ranks half a second after that.
        """
        now = time.monotonic()
        self._forward_signals()
        if self._signals.take_second():
            self._kill_at = 0.0
        if self._signals.ending and not self._sent_sigterm:
            self._sent_sigterm = True
            self._signal_ranks(signal.SIGTERM)
            self._kill_at = min(self._kill_at, now + (_TERM_SECONDS if self._ranks.all_started else 0))
        elif now > self._kill_at:
            if self._signals.ending:
                self._signal_ranks(signal.SIGKILL)
            self._starters.signal(signal.SIGKILL if self._signalled else signal.SIGTERM)
            self._signalled, self._kill_at = True, now + _LOST_TERM_SECONDS
        elif not self._sent_end and self._ranks.all_ended:
            self._sent_end = True
            if self._signals.ending:
                self._kill_at = min(self._kill_at, now + _LOST_TERM_SECONDS)
            self._server.end_ranks()  # a supervisor may be waiting for the other ranks to end
        elif self._kill_at == float("inf") and self._has_failed():
            self._kill_at = now + _OTHERS_SECONDS

    def _forward_signals(self) -> None:
        while self._signals.to_forward:
            sign = self._signals.to_forward.pop()
            self._signal_ranks(signal.SIGSTOP if sign == signal.SIGTSTP else sign)
            if sign == signal.SIGTSTP:
                os.kill(os.getpid(), signal.SIGSTOP)

    def _signal_ranks(self, sign: int, ranks: Container[int] | None = None) -> None:
        for peer, rank in self._ranks.of_peer.items():
            if ranks is None or rank in ranks:
                self._server.send(peer, Kind.SIGNAL, str(int(sign)).encode())

    def _handle(self, frame: Frame) -> None:
        if frame.kind in OUTPUTS:
            self._output.write(MPIRUN, OUTPUTS[frame.kind], frame.body)
        elif frame.kind == _INPUT:
            for peer in (peer for peer, rank in self._ranks.of_peer.items() if rank == 0):
                self._server.send(peer, Kind.STDIN, frame.body)
        elif frame.kind == Kind.HELLO:
            rank, host, process = json.loads(frame.body)
            self._ranks.of_peer[frame.peer] = rank
            self._ranks.started[rank] = (host, process)
        elif frame.kind == Kind.TASK:
            self._task_of[frame.peer] = int(frame.body)
            self._server.send(frame.peer, Kind.PAYLOAD, self._payload)
        elif frame.kind == Kind.RESULT:
            self._outcome.results[self._task_of[frame.peer]] = frame.body
        elif frame.peer in self._ranks.of_peer:
            self._handle_of_rank(self._ranks.of_peer[frame.peer], frame)

    def _handle_of_rank(self, rank: int, frame: Frame) -> None:
        if frame.kind in (Kind.STDOUT, Kind.STDERR):
            self._output.write(rank, frame.kind - Kind.STDOUT, frame.body)
        elif frame.kind == Kind.RAISED:
            self._output.raises(rank)
        elif frame.kind == Kind.STDIN:
            threading.Thread(target=self._read_input, daemon=True).start()
        elif frame.kind == Kind.INIT and frame.body == b"+":
            self._ranks.enter_init(rank)
        elif frame.kind == Kind.INIT:
            self._ranks.in_init.pop(rank, None)
        elif frame.kind == Kind.END and rank not in self._ranks.ends:
            self._take_end(rank, End.decode(frame.body))

    def _take_end(self, rank: int, end: End) -> None:
        is_cause = self._ranks.ends.add(rank, end)
        self._output.end_of_rank(rank, last=is_cause)

    def _end(self) -> None:
        """Ends mpirun, closes the connections, which ends the ranks, and kills ranks of this host that still run."""
        self._starters.close(self._seconds_to_end())
        self._server.close()
        this_host = socket.gethostname()
        remaining = [process_id for host, process_id in self._ranks.started.values() if host == this_host]
        give_up_at = time.monotonic() + _TERM_SECONDS
        while remaining and time.monotonic() < give_up_at:
            remaining = [process_id for process_id in remaining if _is_supervisor(process_id)]
            time.sleep(0.02 if remaining else 0)
        for process_id in remaining:
            with contextlib.suppress(OSError):
                os.kill(process_id, signal.SIGKILL)
        for pipe in self._input:
            pipe.close()

    def _seconds_to_end(self) -> float:
        """Seconds from SIGTERM to SIGKILL for mpirun."""
        if not self._ranks.all_started:
            return _NO_START_TERM_SECONDS
        return _LOST_TERM_SECONDS if self._ranks.ends.first_failed() else _TERM_SECONDS

    def _outcome_for(self, mpirun_code: int) -> Outcome:
        outcome, ranks, ending = self._outcome, self._ranks, self._signals.ending
        outcome.interrupted, outcome.lost_hosts, outcome.apart = bool(ending), ranks.lost_hosts, ranks.apart
        outcome.end = ranks.ends.get(0, outcome.end)
        if ending:
            outcome.code = 128 + ending
        elif (failed := ranks.ends.first_failed()) and not failed[1].is_cause and (text := ranks.never_joined()):
            outcome.code, outcome.report = 1, text
        elif failed:
            outcome.failed_rank, outcome.end = failed
            outcome.failed_host, outcome.code = ranks.started[failed[0]][0], failed[1].shell_code
        elif mpirun_code:
            outcome.code = 128 - mpirun_code if mpirun_code < 0 else mpirun_code
            outcome.report = ranks.not_started(outcome.code)
        elif not ranks.all_ended:  # Open MPI 5's mpirun ends with 0 when a host is lost
            outcome.code = 1
        return outcome


def _is_supervisor(process_id: int) -> bool:
    with contextlib.suppress(OSError):
        return b"smddp_tf.run" in Path(f"/proc/{process_id}/cmdline").read_bytes()
    return False
