"""What is done to a running job."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.faults.processes import send

if TYPE_CHECKING:
    from tests.faults.running import Running

__all__ = ["Fault", "by_itself", "cut", "cut_and_heal", "fill_disk", "kill_launcher", "lose_host", "on_signal_of_ours",
           "signal_rank", "silence_host", "stop_and_continue", "terminate_all", "terminate_launcher",
           "terminate_rank"]  # fmt: skip

# Does it, and returns the ranks that are no survivors.
Fault = Callable[["Running"], "set[int]"]


def signal_rank(sign: signal.Signals) -> Fault:
    """To the case's victim."""

    def fault(running: Running) -> set[int]:
        send([running.rank(running.victim)], sign)
        return {running.victim}

    return fault


def stop_and_continue(seconds: float) -> Fault:
    """The victim stands still for a while."""

    def fault(running: Running) -> set[int]:
        send([running.rank(running.victim)], signal.SIGSTOP)
        time.sleep(seconds)
        send([running.rank(running.victim)], signal.SIGCONT)
        return set()

    return fault


def terminate_rank(running: Running) -> set[int]:
    """One rank is asked to end, in the way of a scheduler: it is a survivor too."""
    send([running.rank(running.victim)], signal.SIGTERM)
    return set()


def kill_launcher(running: Running) -> set[int]:
    send([running.launcher], signal.SIGKILL)
    return set()


def terminate_launcher(running: Running) -> set[int]:
    send([running.launcher], signal.SIGTERM)
    return set()


def terminate_all(running: Running) -> set[int]:
    send([running.rank(rank) for rank in range(running.ranks)], signal.SIGTERM)
    return set()


def by_itself(running: Running) -> set[int]:
    """The victim does it in its own program."""
    running.wait_for("acted", {running.victim}, 60)
    return {running.victim}


def on_signal_of_ours(running: Running) -> set[int]:
    """The victim's program does it when it sees FOLDER/go."""
    (running.folder / "go").touch()
    return by_itself(running)


def fill_disk(running: Running) -> set[int]:
    """Nothing more can be written to the job's small disk. All ranks are survivors."""
    with open(running.here.disk / "filler", "wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))
    return set()


def cut(running: Running) -> set[int]:
    """The victim's node loses its link; its processes run on."""
    running.in_lab.cut(running.node_of(running.victim))
    return set()


def cut_and_heal(seconds: float) -> Fault:
    """The link comes back."""

    def fault(running: Running) -> set[int]:
        node = running.node_of(running.victim)
        running.in_lab.cut(node)
        time.sleep(seconds)
        running.in_lab.heal(node)
        return set()

    return fault


def silence_host(running: Running) -> set[int]:
    """Every process of the victim's node is frozen, the launcher's daemon too, and the link is cut."""
    node = running.node_of(running.victim)
    send(running.in_lab.processes_of(node), signal.SIGSTOP)
    running.in_lab.cut(node)
    return running.ranks_on(node)


def lose_host(running: Running) -> set[int]:
    """The link is cut and every process of the victim's node is gone: a host without power."""
    node = running.node_of(running.victim)
    running.in_lab.cut(node)
    time.sleep(0.5)  # or the kernel says goodbye for them
    processes = running.in_lab.processes_of(node)
    on_first = {process.number for process in running.in_lab.processes_of(0)}
    agents = [process for process in processes if process.parent in on_first]  # in place of ssh, which lives there
    send(agents, signal.SIGSTOP)
    send([process for process in processes if process not in agents], signal.SIGKILL)
    return running.ranks_on(node)
