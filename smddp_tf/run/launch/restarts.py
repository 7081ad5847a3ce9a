"""Jobs that start again after a failure: `smddprun --elastic`. Each start continues from the last commit on disk."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from smddp_tf.elastic.commits import commits_in
from smddp_tf.exceptions import LaunchError
from smddp_tf.lifecycle.restart_settings import COMMIT_DIR, JOB
from smddp_tf.run.hosts.hosts import Host, NotStarted, total_slots
from smddp_tf.run.launch.job import Outcome
from smddp_tf.run.launch.settings import Growth, Settings
from smddp_tf.urls import shown

# After this many starts in a row without a new commit the job is given up: the failure is not random.
_FRUITLESS_STARTS = 3
_PAUSE_SECONDS = 1.0


@dataclass(frozen=True)
class Policy:
    """When a job starts again.

    Attributes:
        growth: how many ranks there may be, and where hosts come from. With fewer slots than its least it does not.
        folder: of the commits. "" makes one in the current folder, and removes it when the job has succeeded.
        limit: how often it starts again; None: as long as there are new commits.
    """

    growth: Growth
    folder: str = ""
    limit: int | None = None


def run_elastic(
    settings: Settings, policy: Policy, launch: Callable[[Settings], Outcome], say: Callable[[str], None]
) -> Outcome:
    """Runs a job to its end, however many starts that takes.

    Args:
        settings: the job. Later starts may have fewer ranks, on the hosts that are left.
        policy: see there.
        launch: runs the job once.
        say: prints a line.

    Returns:
        How the last start ended.
    """
    folder = policy.folder or os.path.abspath(f"smddp-commits-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}")
    settings = replace(settings, variables={**settings.variables, COMMIT_DIR: folder, JOB: uuid.uuid4().hex})
    growth = policy.growth
    most = growth.most or sys.maxsize if growth.discover else settings.ranks
    starts, fruitless, newest = 0, 0, _newest(folder)
    output = settings.output_filename
    while True:
        outcome = _one_start(settings, launch, first=starts == 0)
        starts += 1
        if outcome.code == 0:
            if not policy.folder:
                shutil.rmtree(folder, ignore_errors=True)
            return outcome
        before, newest = newest, _newest(folder)
        fruitless = 0 if newest > before else fruitless + 1
        hosts = _hosts_now(settings.hosts, growth, outcome.lost_hosts)
        ranks = min(most, total_slots(hosts))
        if reason := _why_not_again(policy, outcome, starts, fruitless, ranks):
            later = f"To go on later: smddprun --elastic --commit-dir {shown(folder)} ..."
            say(f"the job is given up: {reason}. {later if newest else 'There is no commit.'}")
            return outcome
        without = f", without {', '.join(sorted(outcome.lost_hosts))}" if outcome.lost_hosts else ""
        where = f"commit {newest} in {shown(folder)}" if newest else "the beginning, there is no commit yet"
        say(f"starts again with {ranks} ranks{without}, from {where}")
        more_output = os.path.join(output, f"start.{starts + 1}") if output else ""
        settings = replace(settings, hosts=hosts, ranks=ranks, output_filename=more_output)
        time.sleep(_PAUSE_SECONDS)


def _hosts_now(hosts: Sequence[Host], growth: Growth, lost: frozenset[str]) -> tuple[Host, ...]:
    if growth.discover:
        with contextlib.suppress(LaunchError):
            hosts = growth.discover(growth.seconds) or hosts
    return tuple(host for host in hosts if host.name not in lost)


def _one_start(settings: Settings, launch: Callable[[Settings], Outcome], first: bool) -> Outcome:
    """A later start without a host is not an error of the caller: the host was lost in the meantime."""
    try:
        return launch(settings)
    except NotStarted as error:
        if first or not error.hosts:
            raise
        return Outcome(code=1, lost_hosts=frozenset(error.hosts))


def _why_not_again(policy: Policy, outcome: Outcome, starts: int, fruitless: int, ranks: int) -> str:
    if outcome.interrupted:
        return "smddprun was told to end"
    if policy.limit is not None and starts > policy.limit:
        return f"it has started again {policy.limit} times (--reset-limit)"
    if fruitless >= _FRUITLESS_STARTS:
        return f"{fruitless} starts in a row have not brought it to a new commit"
    if ranks < policy.growth.least:
        return f"the hosts that are left have {ranks} slots, --min-np asks for {policy.growth.least}"
    return ""


def _newest(folder: str) -> int:
    with contextlib.suppress(OSError):
        return commits_in(folder).newest()
    return 0
