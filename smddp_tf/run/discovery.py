"""Hosts from a script that prints them, as Horovod's elastic jobs have: `host` or `host:slots` in each line."""

from __future__ import annotations

import subprocess
import time

from smddp_tf.run.errors import LaunchError
from smddp_tf.run.hosts import Host, parse_hosts, total_slots

_PAUSE_SECONDS = 1.0


def discovered_hosts(script: str, default_slots: int, wanted: int, seconds: float) -> list[Host]:
    """Runs the shell command `script` until the hosts that it prints have `wanted` slots, for `seconds` at most.

    Raises:
        LaunchError: the script failed or did not end, or its hosts have too few slots.
    """
    give_up_at = time.monotonic() + seconds
    while True:
        lines = _output(script, max(give_up_at - time.monotonic(), 1.0)).split()
        hosts = parse_hosts(",".join(lines), default_slots) if lines else []
        if hosts and total_slots(hosts) >= wanted:
            return hosts
        if time.monotonic() + _PAUSE_SECONDS > give_up_at:
            raise LaunchError(
                f"Expected {wanted} slots from --host-discovery-script {script} within {seconds:g} s "
                f"(--elastic-timeout). Received: {', '.join(map(str, hosts)) or 'no host'}."
            )
        time.sleep(_PAUSE_SECONDS)


def _output(script: str, seconds: float) -> str:
    try:
        done = subprocess.run(script, shell=True, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        raise LaunchError(f"--host-discovery-script {script} did not end within {seconds:g} s.") from None
    if done.returncode:
        raise LaunchError(
            f"--host-discovery-script {script} ended with exit code {done.returncode}: {done.stderr.strip()}"
        )
    return done.stdout
