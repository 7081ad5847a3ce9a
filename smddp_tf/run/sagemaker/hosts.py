"""The hosts of a SageMaker job wait for each other: the leader runs mpirun, which starts ranks on the others."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from smddp_tf.exceptions import LaunchError
from smddp_tf.run.rank.environment_file import FILE, hand_on, path_for
from smddp_tf.run.sagemaker.training import Training

POLL_SECONDS = 1.0
REACHED_WITHIN_SECONDS = 3600.0
DAEMON_WITHIN_SECONDS = 20 * 60.0
DONE_POLL_SECONDS = 30.0
DONE_WITHIN_SECONDS = 600.0
_TELL_TRIES = 5
_SSH_SECONDS = 30.0
_DAEMONS = ("orted", "prted")
_SSHD = "/usr/sbin/sshd"
_FOR_ALL = "/etc/environment"
FAILURE = Path("/opt/ml/output/failure")
_TO_START = ("PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "PYTHONHOME")  # mpirun's daemon and Python


class Hosts:
    """The system calls that waiting needs; tests replace it."""

    clock = staticmethod(time.monotonic)
    sleep = staticmethod(time.sleep)

    def start_sshd(self) -> None:
        """Starts sshd for the leader's connection."""
        if os.path.exists(_SSHD):
            subprocess.Popen([_SSHD, "-D"], stdin=subprocess.DEVNULL, start_new_session=True)

    def ssh(self, host: str, command: str) -> bool:
        """True when `command` ran there and ended with 0."""
        program = shutil.which("ssh")
        if program is None:
            raise LaunchError("There is no ssh in this container; jobs of several hosts need it on every host.")
        options = ["-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=no", "-o", "ConnectTimeout=10"]
        try:
            done = subprocess.run(
                [program, *options, host, command], capture_output=True, check=False, timeout=_SSH_SECONDS
            )
        except subprocess.TimeoutExpired:
            return False
        return done.returncode == 0

    def daemon_runs(self) -> bool:
        """True while mpirun's daemon runs on this host."""
        for name in Path("/proc").glob("[0-9]*/comm"):
            try:
                if name.read_text().strip() in _DAEMONS:
                    return True
            except OSError:  # it has ended
                pass
        return False

    def publish_environment(self, environment: Mapping[str, str]) -> None:
        """Gives what ssh starts here the environment of the container.

        What programs need to start by the file that sshd (as root) reads for every login; where there is none,
        it is made for its owner alone to read. The rest by a file of this user's own.
        """
        hand_on(environment, path_for(os.geteuid()))
        with open(_FOR_ALL, "a", encoding="utf-8", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
            for name in _TO_START:
                if "\n" not in environment.get(name, "\n"):
                    file.write(f"{name}={environment[name]}\n")

    def exit_code_in(self, path: str) -> int | None:
        """Returns the exit code that the leader has written into the file; None while there is no file."""
        try:
            text = Path(path).read_text(encoding="utf-8").strip()
        except OSError:
            return None
        return int(text) if text.isdigit() else 0


def run_training(training: Training, command: Sequence[str], variables: Mapping[str, str]) -> int:
    """This host's part of the job, to its end. Returns the job's exit code.

    Raises:
        LaunchError: the hosts cannot reach each other.
    """
    hosts = Hosts()
    try:
        if training.is_leader:
            return lead(training, lambda: _run_mpirun(training, command, variables), hosts)
        return follow(training, hosts)
    except LaunchError as error:
        tell_failure(str(error))
        raise


def lead(training: Training, job: Callable[[], int], hosts: Hosts) -> int:
    """Waits for the other hosts, runs `job`, notifies them when it has ended."""
    others = [host for host in training.hosts if host != training.leader]
    if others:
        hosts.start_sshd()
    for host in others:
        _wait_for_ssh(hosts, host, host)
    code = 1
    try:
        code = job()
    finally:
        for host in others:
            _tell(training, host, code, hosts)
    return code


def follow(training: Training, hosts: Hosts) -> int:
    """Waits for the leader's job to begin and to end."""
    hosts.publish_environment(os.environ)
    hosts.start_sshd()
    leader = training.leader
    _wait_for_ssh(hosts, leader, f"the leader {leader}")
    done = f"/tmp/done.{leader}"

    def begun() -> bool:
        return hosts.daemon_runs() or hosts.exit_code_in(done) is not None

    _wait(hosts, begun, DAEMON_WITHIN_SECONDS, f"mpirun of the leader {leader} to start its daemon here")
    while hosts.daemon_runs():  # as long as the job takes; it ends with the leader's mpirun
        hosts.sleep(POLL_SECONDS)
    give_up_at = hosts.clock() + DONE_WITHIN_SECONDS
    while (code := hosts.exit_code_in(done)) is None:
        if hosts.clock() <= give_up_at and hosts.ssh(leader, "true"):
            hosts.sleep(DONE_POLL_SECONDS)
        elif hosts.exit_code_in(done) is None:  # still: it may have reported and ended a moment ago
            raise LaunchError(f"The leader {leader} has ended without reporting how the job ended; see its log.")
    return code


def _run_mpirun(training: Training, command: Sequence[str], variables: Mapping[str, str]) -> int:
    from smddp_tf.lifecycle.rank_variables import without_rank_variables
    from smddp_tf.run.hosts.network import choose, local_interfaces
    from smddp_tf.run.launch.launch import run_line
    from smddp_tf.run.launch.settings import UNBUFFERED
    from smddp_tf.run.sagemaker.line import training_line

    variables = {**UNBUFFERED, **variables, FILE: path_for(os.geteuid())}
    environment = without_rank_variables(os.environ)
    made = training_line(training, command, variables, environment)
    choice = choose(local_interfaces(), [], [training.interface])
    outcome = run_line(made.settings, made.line, choice, made.command, environment)
    if outcome.code:
        report = outcome.report or f"The job ended with exit code {outcome.code}."
        tell_failure(f"{outcome.end.raised or report.splitlines()[-1]}\n{report}")  # the first 1,024 bytes are shown
    return outcome.code


def tell_failure(text: str) -> None:
    """Writes the text that SageMaker shows as the job's FailureReason."""
    with contextlib.suppress(OSError):  # there is no such folder outside of a container
        FAILURE.write_text(f"{text}\n", encoding="utf-8")


def _tell(training: Training, host: str, code: int, hosts: Hosts) -> None:
    path = shlex.quote(f"/tmp/done.{training.leader}")
    for _ in range(_TELL_TRIES):
        if hosts.ssh(host, f"echo {code} > {path}"):
            return
        hosts.sleep(POLL_SECONDS)


def _wait_for_ssh(hosts: Hosts, host: str, name: str) -> None:
    _wait(hosts, lambda: hosts.ssh(host, "true"), REACHED_WITHIN_SECONDS, f"{name} to answer to ssh")


def _wait(hosts: Hosts, condition: Callable[[], bool], seconds: float, what: str) -> None:
    give_up_at = hosts.clock() + seconds
    while not condition():
        if hosts.clock() > give_up_at:
            raise LaunchError(f"Waited {seconds:g} s for {what}, in vain.")
        hosts.sleep(POLL_SECONDS)
