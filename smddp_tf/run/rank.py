"""One rank's attendant: `python -m smddp_tf.run.rank COMMAND...`, started by mpirun, starts the command.

It tells the launcher that the rank has started, what it prints, and how it ended. Whichever of the launcher, mpirun and
this process goes first, the command goes too.
"""

from __future__ import annotations

import ctypes
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence

from smddp_tf.run.channel import ADDRESS, END, HELLO, KEY, STDERR, STDOUT, Caller
from smddp_tf.run.errors import LaunchError
from smddp_tf.run.placement import find_placement, variables_of

__all__ = ["attend", "end_with_parent", "main"]

_PR_SET_PDEATHSIG = 1
_DRAIN_SECONDS = 2.0
_KILL_AFTER_SECONDS = 5.0
EXIT_NOT_STARTED = 72


def main() -> None:
    try:
        sys.exit(attend(sys.argv[1:]))
    except LaunchError as error:
        sys.exit(f"smddprun: {error}")


def end_with_parent(sign: int) -> None:
    """Has the kernel send this process `sign` when its parent is gone."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, sign, 0, 0, 0)


def attend(command: Sequence[str]) -> int:
    """Runs `command` to its end; returns an exit code, 128 + N after signal N.

    Raises:
        LaunchError: the launcher cannot be reached.
    """
    end_with_parent(signal.SIGTERM)
    placement = find_placement(os.environ)
    if placement is None:
        raise LaunchError("smddp_tf.run.rank must be started by mpirun.")
    caller = Caller()
    caller.send(HELLO, json.dumps([placement.rank, socket.gethostname(), os.getpid()]).encode())
    environment = {name: value for name, value in os.environ.items() if name not in (ADDRESS, KEY) or _is_task(command)}
    environment.update(variables_of(placement))
    try:
        child = subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            close_fds=False,  # hydra's ranks talk to it through an inherited one
            preexec_fn=lambda: end_with_parent(signal.SIGKILL),
        )  # fmt: skip
    except OSError as error:
        caller.send(STDERR, f"smddprun: {command[0]!r} cannot be started: {error.strerror}.\n".encode())
        caller.send(END, str(127).encode())
        return 127
    # mpirun ends a job with SIGTERM to the whole group; the command decides what it does, and this process reports it.
    for sign in (signal.SIGTERM, signal.SIGINT):
        signal.signal(sign, lambda number, _: _pass_on(child, number))
    _relay(child, caller)
    code = _exit_code(child)
    try:
        caller.send(END, str(code).encode())
        caller.close()
    except OSError:
        pass
    return 128 - code if code < 0 else code


def _is_task(command: Sequence[str]) -> bool:
    """Only the process of a function talks to the launcher itself."""
    return "smddp_tf.run.task" in command


def _pass_on(child: subprocess.Popen[bytes], sign: int) -> None:
    if child.poll() is None:
        child.send_signal(sign)


def _relay(child: subprocess.Popen[bytes], caller: Caller) -> None:
    """Sends on what the command prints, until it has ended, or the launcher has."""
    assert child.stdout
    assert child.stderr
    selector = selectors.DefaultSelector()
    selector.register(child.stdout, selectors.EVENT_READ, STDOUT)
    selector.register(child.stderr, selectors.EVENT_READ, STDERR)
    selector.register(caller, selectors.EVENT_READ, None)
    open_pipes, drain_until = 2, None
    while open_pipes:
        if child.poll() is not None:  # a process it left behind may hold the pipes: not for long
            drain_until = drain_until or time.monotonic() + _DRAIN_SECONDS
            if time.monotonic() > drain_until:
                return
        for key, _ in selector.select(0.1 if drain_until else 0.5):
            if key.data is None:
                return _end(child)  # the launcher never says anything here: it has hung up
            chunk = os.read(key.fd, 1 << 16)
            if not chunk:
                selector.unregister(key.fileobj)
                open_pipes -= 1
                continue
            try:
                caller.send(key.data, chunk)
            except OSError:
                return _end(child)
    return None


def _end(child: subprocess.Popen[bytes]) -> None:
    child.terminate()
    try:
        child.wait(_KILL_AFTER_SECONDS)
    except subprocess.TimeoutExpired:
        child.kill()


def _exit_code(child: subprocess.Popen[bytes]) -> int:
    """Waits: both pipes are closed, which a program may do long before it ends."""
    return child.wait()


if __name__ == "__main__":
    main()
