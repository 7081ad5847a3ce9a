"""Folders, hosts, addresses and URLs that a job cannot use: one line that names them, and none of their passwords."""

from __future__ import annotations

import socket
import stat
import subprocess
from pathlib import Path

import pytest

from smddp_tf import urls
from smddp_tf.exceptions import LaunchError
from smddp_tf.run.hosts import network
from smddp_tf.run.hosts.hosts import NotStarted
from smddp_tf.run.launch.mpi import with_home
from smddp_tf.run.launch.mpirun_command import MpirunCommand, names_agent
from smddp_tf.run.launch.settings import commits_at
from smddp_tf.run.link.server import ControlServer
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


def test_hosts_without_an_address(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = {
        "by-alias": "hostname 127.0.0.1\n",
        "by-jump": "hostname by-jump\nproxyjump door\n",
        "lost": "hostname lost\n",
    }

    def ssh(words: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        assert words[:2] == ["ssh", "-G"]
        return subprocess.CompletedProcess(words, 0, shown.get(words[2], ""), "")

    def address(name: str, *_: object) -> list[object]:
        if name in ("known", "127.0.0.1"):
            return [(socket.AF_INET, 0, 0, "", ("127.0.0.1", 0))]
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(network.subprocess, "run", ssh)
    monkeypatch.setattr(network.socket, "getaddrinfo", address)
    network.check_hosts(["known", "by-alias", "by-jump"])
    with pytest.raises(NotStarted, match="There is no address for the hosts lost, other ") as raised:
        network.check_hosts(["known", "lost", "other"])
    assert raised.value.hosts == ("lost", "other")


def test_another_program_than_ssh_may_know_the_hosts() -> None:
    assert names_agent(["--prtemca", "plm_ssh_agent", "/bin/agent"], {})
    assert names_agent([], {"OMPI_MCA_plm_rsh_agent": "/bin/agent"})
    assert names_agent([], {"HYDRA_LAUNCHER_EXEC": "/bin/agent"})
    assert not names_agent(["--report-bindings"], {"OMPI_MCA_pml": "ob1", "SSH_AGENT_PID": "1"})


def test_a_host_without_ipv4(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(99, "Cannot assign requested address")

    monkeypatch.setattr(socket, "create_server", refuse)
    with pytest.raises(LaunchError, match=r"Nothing can listen on 127\.0\.0\.1 of this host .*need IPv4"):
        ControlServer(["127.0.0.1"])


def test_home_of_a_process_that_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert with_home({"HOME": "/home/me", "A": "1"}) == {"HOME": "/home/me", "A": "1"}
    monkeypatch.delenv("HOME")
    assert Path(with_home({})["HOME"]).is_absolute()
    monkeypatch.setattr("os.path.expanduser", lambda path: path)  # a user without an entry
    assert Path(with_home({"HOME": ""})["HOME"]).is_dir()


SECRET = "s3cr3t"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (f"ftp://me:{SECRET}@host/a@b", "ftp://***@host/a@b"),
        (f"https://{SECRET}@host:80/a", "https://***@host:80/a"),
        (f"sftp://me:{SECRET}@x@host/a", "sftp://***@host/a"),
        (f"https://h/a?sv=1&sig={SECRET}&X-Amz-Signature={SECRET}", "https://h/a?sv=1&sig=***&X-Amz-Signature=***"),
        (f"s3://bucket/a?secret_key={SECRET};token={SECRET}", "s3://bucket/a?secret_key=***;token=***"),
        ("s3://bucket/a@b?versionId=7", "s3://bucket/a@b?versionId=7"),
    ],
)
def test_secrets_of_urls_are_in_no_message(url: str, shown: str) -> None:
    assert urls.shown(f"cannot write to {url} now") == f"cannot write to {shown} now"
    assert SECRET not in MpirunCommand(("mpirun",), {"SMDDP_COMMIT_DIR": url}).shown(["true"])
    pytest.importorskip("fsspec")
    with pytest.raises(LaunchError) as raised:
        commits_at(f"nobody-knows-{url}")
    error: BaseException | None = raised.value
    while error:
        assert SECRET not in str(error)
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
