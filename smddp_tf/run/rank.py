"""One rank's supervisor: `python -m smddp_tf.run.rank COMMAND...`, started by mpirun, starts the command.

It reports to the launcher that the rank has started, its output, and how and why it ended; the rank itself reports why,
through a pipe (tf_ops/core/env/launcher.h). When the launcher, mpirun or this process ends, the command ends too. The
parent of the launcher may end.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from smddp_tf.lifecycle.placement import find_placement
from smddp_tf.run.channel import ADDRESS, KEY, Kind
from smddp_tf.run.client import ControlClient
from smddp_tf.run.ends import End
from smddp_tf.run.errors import LaunchError
from smddp_tf.run.handed_on import take_over
from smddp_tf.run.rank_variables import variables_of

_PR_SET_PDEATHSIG = 1
_DRAIN_SECONDS = 2.0
_KILL_AFTER_SECONDS = 5.0
_AFTER_OTHERS_SECONDS = 3.0  # mpirun reports the first rank that ends, so one that is not the cause waits
_NOTES = "SMDDP_RUN_NOTES"
_RAISED, _BECAUSE, _LOST = b"R", b"B", b"L"


def main() -> None:
    try:
        sys.exit(supervise(sys.argv[1:]))
    except LaunchError as error:
        sys.exit(f"smddprun: {error}")


def end_with_parent(sign: int, parent: int = 0) -> None:
    """Makes the kernel send `sign` to this process when its parent ends; at once, if it is not `parent` now."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, sign, 0, 0, 0)
    if parent and os.getppid() != parent:
        os.kill(os.getpid(), sign)


def supervise(command: Sequence[str]) -> int:
    """Runs `command` to its end; returns an exit code, 128 + N after signal N.

    Raises:
        LaunchError: the launcher cannot be reached.
    """
    end_with_parent(signal.SIGTERM)
    placement = find_placement(os.environ)
    if placement is None:
        raise LaunchError("smddp_tf.run.rank must be started by mpirun.")
    client = ControlClient()
    client.send(Kind.HELLO, json.dumps([placement.rank, socket.gethostname(), os.getpid()]).encode())
    notes = _Notes()
    try:
        child = _start(command, {**variables_of(placement), _NOTES: notes.address})
    except OSError as error:
        client.send(Kind.STDERR, f"smddprun: {command[0]!r} cannot be started: {error.strerror}.\n".encode())
        client.send(Kind.END, End(127).encode())
        return 127
    told = _pass_on_signals(child)
    _relay(child, client, notes)
    end = notes.end_of(child.wait(), told)  # a program may close its pipes long before it ends
    with contextlib.suppress(OSError):
        client.send(Kind.END, end.encode())
    if end.failed and not end.is_cause and not notes.rank_is_lost:
        _wait_for_others(client, told)
    return end.shell_code


def _start(command: Sequence[str], variables: Mapping[str, str]) -> subprocess.Popen[bytes]:
    environment = {**take_over(os.environ), **variables}
    if "smddp_tf.run.task" not in command:  # only the process of a function talks to the launcher itself
        for name in (ADDRESS, KEY):
            environment.pop(name, None)
    parent = os.getpid()
    return subprocess.Popen(
        command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        close_fds=False,  # hydra's ranks talk to it through an inherited one
        preexec_fn=lambda: end_with_parent(signal.SIGKILL, parent),
    )  # fmt: skip


def _pass_on_signals(child: subprocess.Popen[bytes]) -> list[int]:
    """A list of the signals that will have come.

    mpirun ends a job with SIGTERM to the whole group; the command decides what it does, and this process reports it.
    """
    told: list[int] = []

    def pass_on(number: int, _: Any) -> None:
        told.append(number)
        if child.poll() is None:
            child.send_signal(number)

    for sign in (signal.SIGTERM, signal.SIGINT):
        signal.signal(sign, pass_on)
    return told


class _Notes:
    """The pipe through which the command says why it ends, and what it has said."""

    def __init__(self) -> None:
        self._pipe, write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        os.set_inheritable(write, True)
        # A process that has closed it, and got something else under this number, must not write there.
        self.address = f"{write}:{os.fstat(write).st_ino}"
        self._said: dict[bytes, str] = {}

    def fileno(self) -> int:
        return self._pipe

    @property
    def rank_is_lost(self) -> bool:
        return _LOST in self._said

    def read(self) -> bool:
        """True when the command has reported that it raised an exception."""
        try:
            text = os.read(self._pipe, 1 << 16)
        except BlockingIOError:
            return False
        for note in text.split(b"\0"):
            self._said.setdefault(note[:1], note[1:].decode(errors="replace"))
        return _RAISED in self._said

    def end_of(self, code: int, told: Sequence[int]) -> End:
        self.read()
        by_signal = f"it was sent signal {told[0]}" if told else ""
        because = self._said.get(_LOST) or self._said.get(_BECAUSE) or by_signal
        return End(code, self._said.get(_RAISED, ""), because)


def _wait_for_others(client: ControlClient, told: Sequence[int]) -> None:
    """Waits, not for long, for the end of another rank: the launcher closes the connection or mpirun sends a signal."""
    give_up_at = time.monotonic() + _AFTER_OTHERS_SECONDS
    while not told and time.monotonic() < give_up_at and not select.select([client], [], [], 0.1)[0]:
        pass


def _relay(child: subprocess.Popen[bytes], client: ControlClient, notes: _Notes) -> None:
    """Forwards the output of the command, until the command or the launcher has ended."""
    assert child.stdout
    assert child.stderr
    selector = selectors.DefaultSelector()
    selector.register(child.stdout, selectors.EVENT_READ, Kind.STDOUT)
    selector.register(child.stderr, selectors.EVENT_READ, Kind.STDERR)
    selector.register(client, selectors.EVENT_READ, None)
    selector.register(notes, selectors.EVENT_READ, Kind.RAISED)
    open_pipes, drain_until = 2, None
    while open_pipes:
        if child.poll() is not None:  # a process it left behind may hold the pipes: not for long
            drain_until = drain_until or time.monotonic() + _DRAIN_SECONDS
            if time.monotonic() > drain_until:
                return
        for key, _ in selector.select(0.1 if drain_until else 0.5):
            if key.data is None:
                return _end(child)  # the launcher sends nothing here: it has closed the connection
            if key.data == Kind.RAISED:
                chunk = b"" if notes.read() else None
            elif not (chunk := os.read(key.fd, 1 << 16)):
                selector.unregister(key.fileobj)
                open_pipes -= 1
                continue
            try:
                if chunk is not None:
                    client.send(key.data, chunk)
            except OSError:
                return _end(child)
    return None


def _end(child: subprocess.Popen[bytes]) -> None:
    child.terminate()
    try:
        child.wait(_KILL_AFTER_SECONDS)
    except subprocess.TimeoutExpired:
        child.kill()


if __name__ == "__main__":
    main()
