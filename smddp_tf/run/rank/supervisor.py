"""One rank's supervisor, which mpirun starts (processes.py), and which starts the command.

It reports to the launcher that the rank has started, its output, and how and why it ended; the rank itself reports why,
through a pipe (tf_ops/core/env/launcher.h). When the launcher, mpirun or this process ends, the command ends too. The
parent of the launcher may end.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence

from smddp_tf.exceptions import LaunchError
from smddp_tf.lifecycle.notes import BEGINS, HAS_BEGUN, NOTES, SPEED
from smddp_tf.lifecycle.placement import find_placement
from smddp_tf.lifecycle.rank_variables import variables_of
from smddp_tf.link.channel import ADDRESS, KEY, Kind
from smddp_tf.link.client import ControlClient
from smddp_tf.link.ends import End
from smddp_tf.rendezvous.starters import NUMBER
from smddp_tf.run.rank.launcher import connect_to_launcher
from smddp_tf.run.rank.processes import end_with_parent, runs

_DRAIN_SECONDS = 2.0
# Variables of ranks that the user has not set: a crash shows Python's lines, and TensorFlow less.
_DEFAULTS = {"PYTHONFAULTHANDLER": "1", "TF_CPP_MIN_LOG_LEVEL": "1"}
_KILL_AFTER_SECONDS = 5.0
_AFTER_OTHERS_SECONDS = 3.0  # mpirun reports the first rank that ends, so one that is not the cause waits
_AFTER_SIGNAL_SECONDS = 30.0  # mpirun ends the others when one has ended; the launcher decides earlier than this
_LOOK_SECONDS = 1.0  # from one look at the libraries of the command to the next
_RAISED, _BECAUSE, _LOST = b"R", b"B", b"L"
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def main() -> None:
    try:
        sys.exit(supervise(sys.argv[1:]))
    except LaunchError as error:
        sys.exit(f"smddprun: {error}")


def supervise(command: Sequence[str]) -> int:
    """Runs `command` to its end; returns an exit code, 128 + N after signal N.

    Raises:
        LaunchError: the launcher cannot be reached.
    """
    end_with_parent(signal.SIGTERM)
    placement = find_placement(os.environ)
    if placement is None:
        raise LaunchError("smddp_tf.run.rank.supervisor must be started by mpirun.")
    client = connect_to_launcher()
    client.send(Kind.HELLO, json.dumps([placement.rank, socket.gethostname(), os.getpid()]).encode())
    notes = _Notes()
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        child = _start(command, {**variables_of(placement), NOTES: notes.address})
    except OSError as error:
        client.send(Kind.STDERR, f"smddprun: {command[0]!r} cannot be started: {error.strerror}.\n".encode())
        client.send(Kind.END, End(127).encode())
        return 127
    signals = _Signals(child)
    _Relay(child, client, notes, signals).run()
    end = notes.end_of(child.wait(), signals.ending)
    with contextlib.suppress(OSError):
        client.send(Kind.END, end.encode())
    if signals.by_launcher or (end.failed and not end.is_cause and not notes.rank_is_lost):
        _wait_for_others(client, signals)
    return end.shell_code


def _start(command: Sequence[str], variables: Mapping[str, str]) -> subprocess.Popen[bytes]:
    environment = {**_DEFAULTS, **os.environ, **variables}
    is_task = runs("smddp_tf.run.rank.task", command)
    if not is_task and NUMBER not in environment:  # the others do not talk to the launcher themselves
        for name in (ADDRESS, KEY):
            environment.pop(name, None)
    parent = os.getpid()

    def prepare() -> None:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        end_with_parent(signal.SIGKILL, parent)

    given = subprocess.PIPE if not is_task and variables["HOROVOD_RANK"] == "0" else subprocess.DEVNULL
    return subprocess.Popen(
        command, env=environment, stdin=given, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        close_fds=False,  # hydra's ranks talk to it through an inherited one
        preexec_fn=prepare,
    )  # fmt: skip


class _Signals:
    """Hands signals on to the command: those that this process is sent, in a thread of its own, and the launcher's.

    mpirun signals the process group that it made of this process and the command: the command has its signal then.

    Attributes:
        ending: those received that ask to end.
        by_launcher: one of them came from the launcher.
    """

    def __init__(self, child: subprocess.Popen[bytes]) -> None:
        self._child, self.ending, self.by_launcher = child, list[int](), False
        threading.Thread(target=self._wait, args=(os.getpgrp() == os.getpid(),), daemon=True).start()

    def from_launcher(self, number: int) -> None:
        self.by_launcher |= number in _ENDING
        self._send(number)

    def _wait(self, in_own_group: bool) -> None:
        while True:
            came = signal.sigwaitinfo(_SIGNALS)
            self._send(came.si_signo, has_it=in_own_group and came.si_pid == os.getppid())

    def _send(self, number: int, has_it: bool = False) -> None:
        if number in _ENDING:
            self.ending.append(number)
        if not has_it and self._child.poll() is None:
            self._child.send_signal(number)


class _Notes:
    """The pipe through which the command says why it ends, and what it has said; and whether it has TensorFlow."""

    def __init__(self) -> None:
        self._pipe, write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        os.set_inheritable(write, True)
        # A process that has closed it, and got something else under this number, must not write there.
        self.address = f"{write}:{os.fstat(write).st_ino}"
        self._said: dict[bytes, str] = {}
        self._has_tensorflow, self._look_at = False, 0.0

    def fileno(self) -> int:
        return self._pipe

    @property
    def rank_is_lost(self) -> bool:
        return _LOST in self._said

    def read(self) -> list[tuple[Kind, bytes]]:
        """Reads the command's new notes and returns those for the launcher, as messages."""
        try:
            text = os.read(self._pipe, 1 << 16)
        except BlockingIOError:
            return []
        new = [note for note in text.split(b"\0") if note[:1] not in self._said or note[:1] == SPEED]
        self._said.update({note[:1]: note[1:].decode(errors="replace") for note in reversed(new)})
        return [_MESSAGES[note[:1]] for note in new if note[:1] in _MESSAGES]

    def look_around(self, child: int) -> None:
        """Checks at intervals whether the command has loaded TensorFlow, as long as it has not called `hvd.init`."""
        if not self._has_tensorflow and BEGINS not in self._said and time.monotonic() > self._look_at:
            libraries = _libraries(child)
            others_mpi = b"/libmpi" in libraries and b"/libsmddp_" not in libraries
            self._has_tensorflow = b"/libtensorflow" in libraries and not others_mpi
            self._look_at = time.monotonic() + _LOOK_SECONDS

    def end_of(self, code: int, ending: Sequence[int]) -> End:
        self.read()
        by_signal = f"it was sent signal {ending[0]}" if ending else ""
        because = self._said.get(_LOST) or self._said.get(_BECAUSE) or by_signal
        initialized = BEGINS in self._said
        alone = self._has_tensorflow and not initialized
        return End(code, self._said.get(_RAISED, ""), because, initialized, alone, self._said.get(SPEED, ""))


_MESSAGES = {_RAISED: (Kind.RAISED, b""), BEGINS: (Kind.INIT, b"+"), HAS_BEGUN: (Kind.INIT, b"-")}


def _libraries(process: int) -> bytes:
    """Returns the memory maps of the process and of those that it has started."""
    try:
        with open(f"/proc/{process}/maps", "rb") as maps_file, open(f"/proc/{process}/task/{process}/children") as file:
            maps, children = maps_file.read(), file.read().split()
    except OSError:
        return b""
    return maps + b"".join(_libraries(int(child)) for child in children)


def _wait_for_others(client: ControlClient, signals: _Signals) -> None:
    """Waits, not for long, for the end of another rank: the launcher closes the connection or mpirun sends a signal."""
    give_up_at = time.monotonic() + (_AFTER_SIGNAL_SECONDS if signals.by_launcher else _AFTER_OTHERS_SECONDS)
    while (signals.by_launcher or not signals.ending) and time.monotonic() < give_up_at:
        if select.select([client], [], [], 0.1)[0] and client.heard() is None:
            return


class _Relay:
    """Forwards the output of the command, its notes, and what comes from the launcher: signals, and rank 0's input."""

    def __init__(self, child: subprocess.Popen[bytes], client: ControlClient, notes: _Notes, signals: _Signals) -> None:
        self._child, self._client, self._notes, self._signals = child, client, notes, signals
        self._selector, self._open_pipes, self._input = selectors.DefaultSelector(), 2, b""
        for file, kind in ((child.stdout, Kind.STDOUT), (child.stderr, Kind.STDERR), (notes, Kind.RAISED)):
            assert file
            self._selector.register(file, selectors.EVENT_READ, kind)
        self._selector.register(client, selectors.EVENT_READ, None)

    def run(self) -> None:
        """Returns when the command has ended, and its output; ends it when the launcher has ended."""
        drain_until = None
        try:
            if self._child.stdin:
                self._client.send(Kind.STDIN, b"")
            while self._open_pipes or self._child.poll() is None:  # a program may close its pipes long before it ends
                if self._child.poll() is not None:  # a process it left behind may hold the pipes: not for long
                    drain_until = drain_until or time.monotonic() + _DRAIN_SECONDS
                    if time.monotonic() > drain_until:
                        return
                else:
                    self._notes.look_around(self._child.pid)
                for key, _ in self._selector.select(0.1 if drain_until else 0.5 if self._open_pipes else 0.01):
                    for kind, body in self._messages_of(key):
                        self._client.send(kind, body)
        except OSError:
            _end(self._child, self._signals)

    def _messages_of(self, key: selectors.SelectorKey) -> Sequence[tuple[int, bytes]]:
        """For the launcher. Raises OSError when it has disconnected."""
        if key.data is None:
            self._hear()
        elif key.data == Kind.RAISED:
            return self._notes.read()
        elif key.data == Kind.STDIN:
            return self._write_input()
        elif chunk := os.read(key.fd, 1 << 16):
            return [(key.data, chunk)]
        else:
            self._selector.unregister(key.fileobj)
            self._open_pipes -= 1
        return []

    def _hear(self) -> None:
        heard = self._client.heard()
        if heard is None:
            raise ConnectionError
        for kind, body in heard:
            if kind == Kind.SIGNAL:
                self._signals.from_launcher(int(body))
            elif kind == Kind.STDIN and self._child.stdin:
                self._input = body
                self._selector.register(self._child.stdin, selectors.EVENT_WRITE, kind)

    def _write_input(self) -> Sequence[tuple[int, bytes]]:
        """The pipe has room for PIPE_BUF bytes. It asks for more, until the end, or until its reader has closed it."""
        assert self._child.stdin
        self._selector.unregister(self._child.stdin)
        with contextlib.suppress(BrokenPipeError):
            if self._input and os.write(self._child.stdin.fileno(), self._input):
                return [(Kind.STDIN, b"")]
        self._child.stdin.close()
        return []


def _end(child: subprocess.Popen[bytes], signals: _Signals) -> None:
    if not signals.ending:
        child.terminate()
    try:
        child.wait(_KILL_AFTER_SECONDS)
    except subprocess.TimeoutExpired:
        child.kill()


if __name__ == "__main__":
    main()
