"""Jobs without MPI: `smddprun --no-mpi` starts the ranks here, and by ssh elsewhere, and they end with it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.run.started import LAUNCHER, PATIENCE, RANKS, smddprun
from tests.support.mpirun import environment

pytestmark = pytest.mark.launches

SSH = """#!/bin/sh
echo "$@" >> "$0.lines"
while [ "$1" = -o ]; do shift 2; done
shift  # the host
exec env -i HOME="$HOME" SMDDP_HOST_ID=elsewhere /bin/sh -c "$*"
"""


@pytest.fixture
def with_ssh(tmp_path: Path) -> dict[str, str]:
    """The environment in which something stands in for ssh. It passes on no variable, as ssh does not."""
    ssh = tmp_path / "ssh"
    ssh.write_text(SSH)
    ssh.chmod(0o755)
    return {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}


def test_ranks_here_and_elsewhere(tmp_path: Path, with_ssh: dict[str, str]) -> None:
    """On both hosts the sum of a job of four, with the variables of the launcher; no secret on ssh's command line."""
    job = ("--no-mpi", "-H", "localhost:1,203.0.113.9:2", "--fusion-threshold-mb", "2", "-x", "GIVEN", RANKS, "sum")
    done = smddprun(*job, GIVEN="s3cret", **with_ssh).check()
    for rank, local in enumerate((0, 0, 1)):
        assert f"[{rank}]<stdout>: rank {rank} of 3: [6.0, 6.0, 6.0] {local}\n" in done.output
        assert f"[{rank}]<stderr>: threshold 2097152 s3cret\n" in done.output
    lines = (tmp_path / "ssh.lines").read_text()
    assert len(lines.splitlines()) == 1
    assert "BatchMode=yes 203.0.113.9" in lines
    assert "s3cret" not in lines


def test_the_ranks_do_not_meet_at_the_port_that_is_for_programs() -> None:
    tell = "import os; print('ports', os.environ['SMDDP_COORDINATOR'].rpartition(':')[2], os.environ['MASTER_PORT'])"
    output = smddprun("--no-mpi", "-np", "2", sys.executable, "-c", tell).check().output
    (one, other) = re.findall(r"ports (\d+) (\d+)", output)
    assert one == other
    assert one[0] != one[1]


def test_a_rank_that_fails_elsewhere_is_named_and_ends_the_job(with_ssh: dict[str, str]) -> None:
    program = "import os, sys, time; time.sleep(0 if os.environ['RANK'] == '1' else 600); raise OSError('disk')"
    begun = time.monotonic()
    done = smddprun("--no-mpi", "-H", "localhost:1,203.0.113.9:1", sys.executable, "-c", program, **with_ssh)
    assert done.returncode == 1
    assert "ended with exit code 1, and the job with it. Its traceback:" in done.output
    assert "smddprun: rank 1 on " in done.output
    assert "OSError: disk" in done.output
    assert time.monotonic() - begun < 100


def test_a_host_that_ssh_does_not_reach_is_named(tmp_path: Path) -> None:
    ssh = tmp_path / "ssh"
    ssh.write_text("#!/bin/sh\necho 'ssh: connect to host gone port 22: No route to host' >&2\nexit 255\n")
    ssh.chmod(0o755)
    done = smddprun("--no-mpi", "-H", "localhost:1,203.0.113.9:1", sys.executable, "-c", "import time; time.sleep(600)",
                    PATH=f"{tmp_path}{os.pathsep}{os.environ['PATH']}")  # fmt: skip
    assert done.returncode == 255, done.output
    assert "ssh: connect to host gone port 22: No route to host" in done.output
    assert "203.0.113.9" in done.output


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_when_the_launcher_ends(with_ssh: dict[str, str], sign: int) -> None:
    mark = f"left-by-{os.getpid()}-{sign}"
    program = f"import time; print('up', flush=True); time.sleep(600)  # {mark}"
    command = [*LAUNCHER[:-2], "--no-mpi", "-H", "localhost:1,203.0.113.9:1", sys.executable, "-c", program]
    with subprocess.Popen(command, env=environment(with_ssh), stdout=subprocess.PIPE, text=True) as launcher:
        assert launcher.stdout
        for _ in range(2):
            assert "up" in launcher.stdout.readline()
        launcher.send_signal(sign)
        give_up_at = time.monotonic() + PATIENCE
        while (left := _with(mark)) and time.monotonic() < give_up_at:
            time.sleep(0.1)
        assert not left
        assert launcher.wait(PATIENCE) == (-sign if sign == signal.SIGKILL else 128 + sign)


def _with(mark: str) -> list[str]:
    return [" ".join(line) for process in psutil.process_iter(["cmdline"]) if mark in " ".join(
        line := process.info["cmdline"] or [])]  # fmt: skip
