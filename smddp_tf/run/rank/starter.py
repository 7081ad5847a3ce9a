"""Starts the ranks of a job by ssh and directly, in mpirun's place: `main` for the job, `on_host` on each host.

What a host needs, secrets among it, comes through its standard input, whose end makes its ranks end.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from smddp_tf.rendezvous.starters import LOCAL_RANK, LOCAL_SIZE, NUMBER, RANK, SIZE
from smddp_tf.run.rank.processes import end_with_parent, isolated

_MODULE = "smddp_tf.run.rank.starter"
# ssh passes on no PYTHONPATH: a host imports this package from where the launcher has it.
_ON_HOST = (
    "import json, sys; what = json.loads(sys.stdin.buffer.readline()); sys.path[:1] = what['path']; "
    f"from {_MODULE} import on_host; on_host(what)"
)
_TERM_SECONDS = 5.0  # from SIGTERM to SIGKILL
_LOOK_SECONDS = 0.05


def words(
    hosts: Sequence[tuple[str, int]], agent: Sequence[str], forwarded: Sequence[str], first: int | None = None
) -> list[str]:
    """The words that start `main`, up to the ranks' command.

    Args:
        hosts: each host's name, "" for this one, and its number of ranks.
        agent: ssh and its options, up to the host's name.
        forwarded: names of the variables that ranks on other hosts get from here.
        first: the number for life of the first one, in a job that goes on without ranks that it loses; else None.
    """
    return [*isolated(_MODULE, sys.executable, bare=True), json.dumps([hosts, agent, forwarded, first])]


def main() -> None:
    """Starts the job's ranks; exits with the first exit code that is not 0, at once or, with numbers, at the end."""
    hosts, agent, forwarded, number = json.loads(sys.argv[1])
    end_with_parent(signal.SIGTERM)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    first = number or 0
    total = first + sum(slots for _, slots in hosts)
    starters = []
    try:
        for name, slots in hosts:
            python = [sys.executable, "-c", _ON_HOST]
            line = [*agent, name, shlex.join(python)] if name else python
            starters.append(subprocess.Popen(line, stdin=subprocess.PIPE, start_new_session=bool(name)))
            kept = {key: os.environ[key] for key in forwarded if key in os.environ} if name else dict(os.environ)
            numbers = {"first": first, "slots": slots, "size": total, "in_rounds": number is not None}
            place = {"folder": os.getcwd(), "path": sys.path, "environment": kept}
            _tell(starters[-1], {**numbers, **place, "command": sys.argv[2:]})
            first += slots
        code = _wait(starters, until_all=number is not None)
    finally:
        for starter in starters:
            with contextlib.suppress(OSError):
                starter.stdin.close() if starter.stdin else None
        for starter in starters:
            with contextlib.suppress(subprocess.TimeoutExpired):
                starter.wait(2 * _TERM_SECONDS)
    sys.exit(code)


def on_host(what: Mapping[str, Any]) -> None:
    """Starts this host's ranks; exits with the first exit code that is not 0, as `main` does.

    Args:
        what: as `main` sends it. Standard input stays open as long as the job runs.
    """
    with contextlib.suppress(OSError):
        os.chdir(what["folder"])
    parent = os.getpid()
    ranks = [
        subprocess.Popen(
            what["command"],
            env={**os.environ, **what["environment"], **_numbers(what, local)},
            stdin=subprocess.DEVNULL,
            preexec_fn=lambda: end_with_parent(signal.SIGTERM, parent),
        )
        for local in range(what["slots"])
    ]
    code = _wait(ranks, sys.stdin.fileno(), until_all=what["in_rounds"])
    for rank in ranks:
        rank.terminate()
    until = time.monotonic() + _TERM_SECONDS
    for rank in ranks:
        with contextlib.suppress(subprocess.TimeoutExpired):
            rank.wait(max(0.0, until - time.monotonic()))
        rank.kill()
    sys.exit(code)


def _numbers(what: Mapping[str, Any], local: int) -> dict[str, str]:
    numbers = {RANK: what["first"] + local, SIZE: what["size"], LOCAL_RANK: local, LOCAL_SIZE: what["slots"]}
    if what["in_rounds"]:
        numbers[NUMBER] = what["first"] + local
    return {name: str(number) for name, number in numbers.items()}


def _tell(starter: subprocess.Popen[bytes], what: Mapping[str, Any]) -> None:
    assert starter.stdin
    with contextlib.suppress(OSError):  # it has ended, which its exit code says
        starter.stdin.write(json.dumps(what).encode() + b"\n")
        starter.stdin.flush()


def _wait(processes: Sequence[subprocess.Popen[bytes]], lifeline: int | None = None, until_all: bool = False) -> int:
    """Returns 0 when all have ended well, or the first other exit code; 1 when `lifeline` has reached its end."""
    while True:
        codes = [process.poll() for process in processes]
        failed = next((code for code in codes if code), 0)
        if None not in codes or (failed and not until_all):
            return failed if failed >= 0 else 128 - failed
        if select.select([] if lifeline is None else [lifeline], [], [], _LOOK_SECONDS)[0]:
            return 1
