"""Runs a job: starts mpirun, listens to the ranks, and cleans up however the job ends."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from smddp_tf.exceptions import LaunchError
from smddp_tf.run.launch.rank_states import RankStates
from smddp_tf.run.launch.signals import LauncherSignals
from smddp_tf.run.link.channel import ADDRESS, KEY, Kind
from smddp_tf.run.link.ends import End
from smddp_tf.run.link.server import ControlServer, Frame
from smddp_tf.run.output.console import MPIRUN, say
from smddp_tf.run.output.output import Output
from smddp_tf.run.rank.processes import end_with_parent

_TERM_SECONDS = 10.0  # from SIGTERM to SIGKILL
_OTHERS_SECONDS = 8.0  # for mpirun to end the other ranks after one has failed: it waits for ever for a silent host
_LOST_TERM_SECONDS = 3.0  # from SIGTERM to SIGKILL then
_NO_START_TERM_SECONDS = 0.5  # likewise, where ranks did not start in time: mpirun waits for its ssh
_LAST_OUTPUT_SECONDS = 3.0  # without a message from any rank after mpirun has ended
_LOST_OUTPUT_SECONDS = 0.5  # likewise, after a signal to end
_MPIRUN = {100: 0, 101: 1}  # pipes of mpirun: kind of frame to stream
_INPUT = 102  # kind of frame: standard input


@dataclass
class Outcome:
    """The end of a job.

    Attributes:
        code: for the shell: that of the rank that caused the end of the job.
        failed_rank: that rank, or None.
        failed_host: its host.
        end: the reported facts of its end; of rank 0's where there is no such rank.
        results: the messages that ranks sent back, by rank, in the order of arrival.
        interrupted: a signal to the launcher ended it.
        lost_hosts: hosts none of whose ranks reported its end, while ranks of other hosts did.
        report: what is printed about the failed rank.
        apart: several ranks have loaded TensorFlow, and none has called `hvd.init`.
    """

    code: int = 0
    failed_rank: int | None = None
    failed_host: str = ""
    end: End = field(default_factory=lambda: End(0))
    results: dict[int, bytes] = field(default_factory=dict)
    interrupted: bool = False
    lost_hosts: frozenset[str] = frozenset()
    apart: bool = False
    report: str = ""


class Job:
    """One job, to be run once.

    Args:
        words: mpirun's line, the ranks' command included.
        environment: of mpirun.
        hosts: the host of each rank.
        server: to which the ranks connect.
        output: what prints their lines.
        start_timeout: seconds within which all ranks must have connected.
        payload: what a process that asks for work gets.
    """

    def __init__(
        self,
        words: Sequence[str],
        environment: Mapping[str, str],
        hosts: Sequence[str],
        server: ControlServer,
        output: Output,
        start_timeout: float,
        payload: bytes = b"",
    ) -> None:
        self._words, self._server, self._output = list(words), server, output
        self._environment = {**environment, ADDRESS: server.addresses, KEY: server.key}
        self._start_timeout, self._payload = start_timeout, payload
        self._task_of: dict[int, int] = {}  # by peer: processes that run a function
        self._ranks, self._outcome, self._signals = RankStates(hosts), Outcome(), LauncherSignals()
        read, write = os.pipe()
        self._input = os.fdopen(read, "rb", 0), os.fdopen(write, "wb", 0)
        self._told = self._all_ended = False  # the ranks that they are to end; that all have
        self._kill_at = float("inf")
        self._patient = True  # mpirun has been sent no signal

    def run(self) -> Outcome:
        """Waits for the end.

        Raises:
            LaunchError: mpirun could not be started, or not all ranks were in time.
        """
        with self._signals.taken():
            process = self._start()
            try:
                self._listen(process)
            finally:
                self._end(process)
        return self._concluded(process.returncode)

    def _start(self) -> subprocess.Popen[bytes]:
        launcher = os.getpid()
        try:
            process = subprocess.Popen(
                self._words, env=self._environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.PIPE, start_new_session=True,
                preexec_fn=lambda: end_with_parent(signal.SIGTERM, launcher),
            )  # fmt: skip
        except OSError as error:
            raise LaunchError(f"{self._words[0]} cannot be started: {error.strerror}.") from None
        assert process.stdout
        assert process.stderr
        self._server.listen_to(process.stdout.fileno(), 100)
        self._server.listen_to(process.stderr.fileno(), 101)
        self._server.listen_to(self._input[0].fileno(), _INPUT)
        return process

    def _read_input(self) -> None:
        """Has `_hear` get the next piece of standard input; at its end, and of a terminal, an empty one.

        A process in the background that reads a terminal is stopped.
        """
        chunk = b""
        with contextlib.suppress(OSError):  # it is closed, or cannot be read under nohup
            chunk = b"" if os.isatty(0) else os.read(0, select.PIPE_BUF)
        with contextlib.suppress(ValueError):  # the job has ended, and has closed the pipe
            self._input[1].write(chunk) if chunk else self._input[1].close()

    def _listen(self, process: subprocess.Popen[bytes]) -> None:
        """Returns when mpirun has ended and all messages of the ranks have been received and printed."""
        start_until = time.monotonic() + self._start_timeout
        silent_until = None  # once mpirun has ended
        while True:
            heard = False
            for frame in self._server.frames(0.1):
                self._hear(frame)
                heard = True
            self._output.look_around()
            if silent_until is None:
                self._stop_if_asked(process)
                if process.poll() is None:
                    if not self._ranks.all_started and time.monotonic() > start_until:
                        raise self._ranks.too_late(self._start_timeout, self._words[0])
                    if late := self._ranks.late_for_init():
                        say(late)
                    self._ranks.check_init()
                    continue
                self._server.end_ranks()
            elif not heard and (not self._server.connected or self._signals.ending or time.monotonic() > silent_until):
                return
            if heard or silent_until is None:
                silent_until = time.monotonic() + (_LAST_OUTPUT_SECONDS if self._patient else _LOST_OUTPUT_SECONDS)

    def _stop_if_asked(self, process: subprocess.Popen[bytes]) -> None:
        """Sends signals: to the ranks what the launcher was sent, to mpirun when they, or it, do not end.

        mpirun does not get SIGTERM before, because it kills the ranks half a second later.
        """
        now = time.monotonic()
        self._pass_on()
        if self._signals.take_second():
            self._kill_at = 0.0
        if self._signals.ending and not self._told:
            self._told = True
            self._signal_ranks(signal.SIGTERM)
            self._kill_at = min(self._kill_at, now + (_TERM_SECONDS if self._ranks.all_started else 0))
        elif now > self._kill_at:
            if self._signals.ending:
                self._signal_ranks(signal.SIGKILL)
            _signal_group(process, signal.SIGTERM if self._patient else signal.SIGKILL)
            self._patient, self._kill_at = False, now + _LOST_TERM_SECONDS
        elif not self._all_ended and self._ranks.all_ended:
            self._all_ended = True
            if self._signals.ending:
                self._kill_at = min(self._kill_at, now + _LOST_TERM_SECONDS)
            self._server.end_ranks()  # a supervisor may wait for the end of others
        elif self._ranks.ends.first_failed() and self._kill_at == float("inf"):
            self._kill_at = now + _OTHERS_SECONDS

    def _pass_on(self) -> None:
        while self._signals.passed_on:
            sign = self._signals.passed_on.pop()
            self._signal_ranks(signal.SIGSTOP if sign == signal.SIGTSTP else sign)
            if sign == signal.SIGTSTP:
                os.kill(os.getpid(), signal.SIGSTOP)

    def _signal_ranks(self, sign: int) -> None:
        for peer in list(self._ranks.of_peer):
            self._server.send(peer, Kind.SIGNAL, str(int(sign)).encode())

    def _hear(self, frame: Frame) -> None:
        if frame.kind in _MPIRUN:
            self._output.write(MPIRUN, _MPIRUN[frame.kind], frame.body)
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
            self._hear_rank(self._ranks.of_peer[frame.peer], frame)

    def _hear_rank(self, rank: int, frame: Frame) -> None:
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
            is_cause = self._ranks.ends.add(rank, End.decode(frame.body))
            self._output.end_of_rank(rank, last=is_cause)

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        """Ends mpirun, closes the connections, which ends the ranks, and kills those of this host that are left."""
        if process.poll() is None:
            _signal_group(process, signal.SIGTERM)
            try:
                process.wait(self._seconds_to_end())
            except subprocess.TimeoutExpired:
                _signal_group(process, signal.SIGKILL)
                process.wait()
        self._server.close()
        here = socket.gethostname()
        left = [number for host, number in self._ranks.started.values() if host == here]
        give_up_at = time.monotonic() + _TERM_SECONDS
        while left and time.monotonic() < give_up_at:
            left = [number for number in left if _is_supervisor(number)]
            time.sleep(0.02 if left else 0)
        for number in left:
            with contextlib.suppress(OSError):
                os.kill(number, signal.SIGKILL)
        for pipe in filter(None, (process.stdout, process.stderr, *self._input)):
            pipe.close()

    def _seconds_to_end(self) -> float:
        """For mpirun, from SIGTERM to SIGKILL."""
        if not self._ranks.all_started:
            return _NO_START_TERM_SECONDS
        return _LOST_TERM_SECONDS if self._ranks.ends.first_failed() else _TERM_SECONDS

    def _concluded(self, mpirun_code: int) -> Outcome:
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


def _signal_group(process: subprocess.Popen[bytes], sign: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, sign)


def _is_supervisor(number: int) -> bool:
    try:
        with open(f"/proc/{number}/cmdline", "rb") as file:
            return b"smddp_tf.run" in file.read()
    except OSError:
        return False
