"""The hosts that a script, or a function, names while a job runs."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence

from smddp_tf.exceptions import LaunchError
from smddp_tf.run.hosts.hosts import Host, parse_hosts, total_slots

Discover = Callable[[float], Sequence[Host]]
_PAUSE_SECONDS = 1.0
_LOOK_SECONDS = 60.0


def of_script(script: str, default_slots: int) -> Discover:
    """A function that runs the shell command `script`, for as many seconds as it is given at most.

    It raises LaunchError where the script fails, or does not end.
    """

    def discover(seconds: float) -> list[Host]:
        try:
            done = subprocess.run(script, shell=True, capture_output=True, text=True, timeout=seconds, check=False)
        except subprocess.TimeoutExpired:
            raise LaunchError(f"--host-discovery-script {script} did not end within {seconds:g} s.") from None
        if done.returncode:
            raise LaunchError(
                f"--host-discovery-script {script} ended with exit code {done.returncode}: {done.stderr.strip()}"
            )
        lines = done.stdout.split()
        return parse_hosts(",".join(lines), default_slots) if lines else []

    return discover


def of_function(function: Callable[[], Mapping[str, int]]) -> Discover:
    """A function that calls `function`, which returns the slots of each host by name.

    It raises LaunchError where that fails, or returns something else.
    """

    def discover(_: float) -> list[Host]:
        try:
            return parse_hosts(",".join(f"{name}:{slots}" for name, slots in function().items()))
        except Exception as error:
            raise LaunchError(
                "The function of host_discovery_script must return the slots of each host, {'host1': 2}: "
                f"{type(error).__name__}: {error}"
            ) from error

    return discover


def discovered_hosts(script: object, discover: Discover, wanted: int, seconds: float) -> list[Host]:
    """Asks until the hosts have `wanted` slots, for `seconds` at most.

    Raises:
        LaunchError: the script failed or did not end, or its hosts have too few slots.
    """
    give_up_at = time.monotonic() + seconds
    while True:
        hosts = list(discover(max(give_up_at - time.monotonic(), 1.0)))
        if hosts and total_slots(hosts) >= wanted:
            return hosts
        if time.monotonic() + _PAUSE_SECONDS > give_up_at:
            raise LaunchError(
                f"Expected {wanted} slots from --host-discovery-script {script} within {seconds:g} s "
                f"(--elastic-timeout). Received: {', '.join(map(str, hosts)) or 'no host'}."
            )
        time.sleep(_PAUSE_SECONDS)


class HostWatch(threading.Thread):
    """Asks every second, in this thread, from `start` to `stop`.

    Attributes:
        hosts: the last answer; None before the first one.
        problem: why there was none the last time; "" where there was one.
    """

    def __init__(self, discover: Discover) -> None:
        super().__init__(name="smddprun hosts", daemon=True)
        self.hosts: Sequence[Host] | None = None
        self.problem = ""
        self._discover, self._told_to_stop = discover, threading.Event()

    def stop(self) -> None:
        """Does not wait for an answer that is under way."""
        self._told_to_stop.set()

    def run(self) -> None:
        while not self._told_to_stop.wait(_PAUSE_SECONDS):
            try:
                self.hosts, self.problem = self._discover(_LOOK_SECONDS), ""
            except LaunchError as error:
                self.problem = str(error)
