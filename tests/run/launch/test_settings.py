"""Folders, hosts and URLs that a job cannot use: one line that names them, and none of their passwords."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from smddp_tf.exceptions import LaunchError
from smddp_tf.run.launch.mpirun_command import names_agent
from smddp_tf.run.launch.settings import commits_at
from smddp_tf.run.output.output import Output


def test_folders_that_cannot_be_made_or_written_to(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    (tmp_path / "link" / "rank.0").mkdir(parents=True)
    (tmp_path / "link" / "rank.0" / "stdout").symlink_to(file)
    for folder in (file / "logs", Path("/proc/logs"), tmp_path / "link"):
        with pytest.raises(LaunchError, match=f"^--output-filename {folder}: expected a folder"):
            Output(1, str(folder))
    for folder in (file, file / "commits", Path("/proc/commits")):
        with pytest.raises(LaunchError, match=f"^--commit-dir {folder}: expected a folder"):
            commits_at(str(folder))
    made = tmp_path / "made" / "commits"
    assert commits_at(str(made)) == str(made)
    assert stat.S_IMODE(made.stat().st_mode) == 0o700


def test_another_program_than_ssh_may_know_the_hosts() -> None:
    assert names_agent(["--prtemca", "plm_ssh_agent", "/bin/agent"], {})
    assert names_agent([], {"OMPI_MCA_plm_rsh_agent": "/bin/agent"})
    assert names_agent([], {"HYDRA_LAUNCHER_EXEC": "/bin/agent"})
    assert not names_agent(["--report-bindings"], {"OMPI_MCA_pml": "ob1", "SSH_AGENT_PID": "1"})
