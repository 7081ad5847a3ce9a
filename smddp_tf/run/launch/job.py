"""Runs a job: starts mpirun, listens to the ranks, and cleans up however the job ends."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from smddp_tf.exceptions import LaunchError
from smddp_tf.run.hosts.hosts import NotStarted, is_this_host
from smddp_tf.run.link.channel import ADDRESS, KEY, Kind
from smddp_tf.run.link.ends import End, Ends
from smddp_tf.run.link.server import ControlServer, Frame
from smddp_tf.run.output.console import MPIRUN
from smddp_tf.run.output.output import Output
from smddp_tf.run.rank.processes import end_with_parent

_TERM_SECONDS = 10.0  # from SIGTERM to SIGKILL
_SECOND_SIGNAL_SECONDS = 0.5  # one that comes earlier is the same: `timeout` sends it to the process and to its group
_INIT_SECONDS = 5.0  # for `hvd.init` of the others when a rank has ended without it
_PASSED_ON = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGTSTP, signal.SIGCONT)
_OTHERS_SECONDS = 8.0  # for mpirun to end the other ranks after one has failed: it waits for ever for a silent host
_LOST_TERM_SECONDS = 3.0  # from SIGTERM to SIGKILL then
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
        end: the reported facts of its end.
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
        self._words, self._hosts, self._server, self._output = list(words), list(hosts), server, output
        self._environment = {**environment, ADDRESS: server.addresses, KEY: server.key}
        self._start_timeout, self._payload = start_timeout, payload
        self._rank_of: dict[int, int] = {}  # by peer: supervisors
        self._task_of: dict[int, int] = {}  # by peer: processes that run a function
        self._started: dict[int, tuple[str, int]] = {}  # by rank: host, process
        self._in_init: dict[int, float] = {}  # ranks, and since when
        self._ends = Ends()
        self._outcome = Outcome()
        self._signal, self._signal_at = 0, 0.0
        self._passed_on: set[int] = set()  # signals that the ranks have yet to get
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
        previous = self._take_signals()
        try:
            process = self._start()
            try:
                self._listen(process)
            finally:
                self._end(process)
        finally:
            for sign, handler in previous.items():
                signal.signal(sign, handler)
        return self._concluded(process.returncode)

    def _take_signals(self) -> dict[int, Any]:
        if threading.current_thread() is not threading.main_thread():
            return {}
        wanted = [signal.SIGINT, signal.SIGTERM]
        if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # not under nohup
            wanted.append(signal.SIGHUP)
        handlers = dict.fromkeys(wanted, self._on_signal)
        handlers |= {sign: self._on_passed_on for sign in _PASSED_ON if signal.getsignal(sign) != signal.SIG_IGN}
        return {sign: signal.signal(sign, handler) for sign, handler in handlers.items()}

    def _on_signal(self, sign: int, _: Any) -> None:
        now = time.monotonic()
        if not self._signal:
            self._signal, self._signal_at = sign, now
        elif now > self._signal_at + _SECOND_SIGNAL_SECONDS:
            self._kill_at = 0.0

    def _on_passed_on(self, sign: int, _: Any) -> None:
        self._passed_on.add(sign)

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
                    if len(self._started) < len(self._hosts) and time.monotonic() > start_until:
                        raise NotStarted(self._too_late(), self._silent_hosts())
                    self._check_init()
                    continue
                self._server.end_ranks()
            elif not heard and (not self._server.connected or self._signal or time.monotonic() > silent_until):
                return
            if heard or silent_until is None:
                silent_until = time.monotonic() + (_LAST_OUTPUT_SECONDS if self._patient else _LOST_OUTPUT_SECONDS)

    def _stop_if_asked(self, process: subprocess.Popen[bytes]) -> None:
        """Sends signals: to the ranks what the launcher was sent, to mpirun when they, or it, do not end.

        mpirun does not get SIGTERM before, because it kills the ranks half a second later.
        """
        now = time.monotonic()
        self._pass_on()
        if self._signal and not self._told:
            self._told = True
            self._signal_ranks(signal.SIGTERM)
            self._kill_at = min(self._kill_at, now + (_TERM_SECONDS if len(self._started) == len(self._hosts) else 0))
        elif now > self._kill_at:
            if self._signal:
                self._signal_ranks(signal.SIGKILL)
            _signal_group(process, signal.SIGTERM if self._patient else signal.SIGKILL)
            self._patient, self._kill_at = False, now + _LOST_TERM_SECONDS
        elif self._signal and not self._all_ended and len(self._ends) == len(self._hosts):
            self._all_ended, self._kill_at = True, min(self._kill_at, now + _LOST_TERM_SECONDS)
            self._server.end_ranks()
        elif self._ends.first_failed() and self._kill_at == float("inf"):
            self._kill_at = now + _OTHERS_SECONDS

    def _pass_on(self) -> None:
        while self._passed_on:
            sign = self._passed_on.pop()
            self._signal_ranks(signal.SIGSTOP if sign == signal.SIGTSTP else sign)
            if sign == signal.SIGTSTP:
                os.kill(os.getpid(), signal.SIGSTOP)

    def _signal_ranks(self, sign: int) -> None:
        for peer in list(self._rank_of):
            self._server.send(peer, Kind.SIGNAL, str(int(sign)).encode())

    def _check_init(self) -> None:
        """Raises NotStarted where mpirun does not end a job whose ranks wait in `hvd.init` for one that has ended."""
        if (text := self._never_joined()) and time.monotonic() > max(self._in_init.values()) + _INIT_SECONDS:
            raise NotStarted(text, ())

    def _never_joined(self) -> str:
        """Which ranks have ended without `hvd.init`, in which others wait; "" where that is not so."""
        missing = [rank for rank, end in self._ends.items() if not (end.failed or end.initialized)]
        if not missing or not self._in_init:
            return ""
        host, _ = self._started[missing[0]]
        return (
            f"rank {', '.join(map(str, missing))} on {host} has ended, with exit code 0, without having called "
            f"hvd.init(), in which rank {', '.join(map(str, self._in_init))} waits for it. All ranks must call it."
        )

    def _hear(self, frame: Frame) -> None:
        if frame.kind in _MPIRUN:
            self._output.write(MPIRUN, _MPIRUN[frame.kind], frame.body)
        elif frame.kind == _INPUT:
            for peer in (peer for peer, rank in self._rank_of.items() if rank == 0):
                self._server.send(peer, Kind.STDIN, frame.body)
        elif frame.kind == Kind.HELLO:
            rank, host, process = json.loads(frame.body)
            self._rank_of[frame.peer] = rank
            self._started[rank] = (host, process)
        elif frame.kind == Kind.TASK:
            self._task_of[frame.peer] = int(frame.body)
            self._server.send(frame.peer, Kind.PAYLOAD, self._payload)
        elif frame.kind == Kind.RESULT:
            self._outcome.results[self._task_of[frame.peer]] = frame.body
        elif frame.peer in self._rank_of:
            self._hear_rank(self._rank_of[frame.peer], frame)

    def _hear_rank(self, rank: int, frame: Frame) -> None:
        if frame.kind in (Kind.STDOUT, Kind.STDERR):
            self._output.write(rank, frame.kind - Kind.STDOUT, frame.body)
        elif frame.kind == Kind.RAISED:
            self._output.raises(rank)
        elif frame.kind == Kind.STDIN:
            threading.Thread(target=self._read_input, daemon=True).start()
        elif frame.kind == Kind.INIT and frame.body == b"+":
            self._in_init[rank] = time.monotonic()
        elif frame.kind == Kind.INIT:
            self._in_init.pop(rank, None)
        elif frame.kind == Kind.END and rank not in self._ends:
            is_cause = self._ends.add(rank, End.decode(frame.body))
            self._output.end_of_rank(rank, last=is_cause)

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        """Ends mpirun, closes the connections, which ends the ranks, and kills those of this host that are left."""
        if process.poll() is None:
            _signal_group(process, signal.SIGTERM)
            try:
                is_lost = self._ends.first_failed() or len(self._started) < len(self._hosts)
                process.wait(_LOST_TERM_SECONDS if is_lost else _TERM_SECONDS)
            except subprocess.TimeoutExpired:
                _signal_group(process, signal.SIGKILL)
                process.wait()
        self._server.close()
        here = socket.gethostname()
        left = [number for host, number in self._started.values() if host == here]
        give_up_at = time.monotonic() + _TERM_SECONDS
        while left and time.monotonic() < give_up_at:
            left = [number for number in left if _is_supervisor(number)]
            time.sleep(0.02 if left else 0)
        for number in left:
            with contextlib.suppress(OSError):
                os.kill(number, signal.SIGKILL)
        for pipe in (process.stdout, process.stderr, *self._input):
            if pipe:
                pipe.close()

    def _concluded(self, mpirun_code: int) -> Outcome:
        outcome = self._outcome
        outcome.interrupted, outcome.lost_hosts = bool(self._signal), self._lost_hosts()
        outcome.apart = len(self._hosts) > 1 and all(
            rank in self._ends and self._ends[rank].alone for rank in range(len(self._hosts))
        )
        if self._signal:
            outcome.code = 128 + self._signal
        elif (failed := self._ends.first_failed()) and not failed[1].is_cause and (text := self._never_joined()):
            outcome.code, outcome.report = 1, text
        elif failed:
            outcome.failed_rank, outcome.end = failed
            outcome.failed_host, outcome.code = self._started[failed[0]][0], failed[1].shell_code
        elif mpirun_code:
            outcome.code = 128 - mpirun_code if mpirun_code < 0 else mpirun_code
        elif len(self._ends) < len(self._hosts):  # Open MPI 5's mpirun ends with 0 when a host is lost
            outcome.code = 1
        return outcome

    def _lost_hosts(self) -> frozenset[str]:
        heard = {self._hosts[rank] for rank in self._ends}
        return frozenset(host for host in self._hosts if heard and host not in heard and not is_this_host(host))

    def _silent_hosts(self) -> tuple[str, ...]:
        heard = {self._hosts[rank] for rank in self._started}
        return tuple(dict.fromkeys(host for host in self._hosts if host not in heard))

    def _too_late(self) -> str:
        missing = [rank for rank in range(len(self._hosts)) if rank not in self._started]
        hosts = list(dict.fromkeys(self._hosts[rank] for rank in missing))
        silent = self._silent_hosts()
        advice = (
            f"see that `ssh {hosts[0]} true` works from here without a question, that the same Python is at "
            f"{sys.executable} there, and that the hosts reach each other (--network-interfaces)."
        )
        return (
            f"{len(missing)} of {len(self._hosts)} ranks had not started after {self._start_timeout:g} s "
            f"(--start-timeout): rank {', '.join(map(str, missing))} on {', '.join(hosts)}. "
            + (f"Nothing at all came from {', '.join(silent)}. " if silent else "")
            + (
                f"{self._words[0]} hangs, or the machine is very busy."
                if hosts == ["localhost"]
                else f"Please {advice}"
            )
        )


def _signal_group(process: subprocess.Popen[bytes], sign: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, sign)


def _is_supervisor(number: int) -> bool:
    try:
        with open(f"/proc/{number}/cmdline", "rb") as file:
            return b"smddp_tf.run" in file.read()
    except OSError:
        return False
