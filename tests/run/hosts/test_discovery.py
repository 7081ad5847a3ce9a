"""The hosts that a script names."""

from __future__ import annotations

from pathlib import Path

import pytest

from smddp_tf.exceptions import LaunchError
from smddp_tf.run.hosts.discovery import HostWatch, of_script
from smddp_tf.run.hosts.hosts import Host
from tests.waiting import until


def test_hosts_of_a_script() -> None:
    assert of_script("echo h1; echo h2:3", 2)(9) == [Host("h1", 2), Host("h2", 3)]
    assert of_script("true", 2)(9) == []
    with pytest.raises(LaunchError, match="ended with exit code 3: no net"):
        of_script("echo no net >&2; exit 3", 1)(9)
    with pytest.raises(LaunchError, match=r"did not end within 0\.2 s"):
        of_script("sleep 9", 1)(0.2)


def test_the_hosts_now(tmp_path: Path) -> None:
    """A script that fails leaves the last answer."""
    file = tmp_path / "hosts"
    watch = HostWatch(of_script(f"cat {file}", 1))
    assert watch.hosts is None
    watch.start()
    try:
        until(lambda: watch.problem)
        assert "exit code 1" in watch.problem
        assert watch.hosts is None
        file.write_text("h1:2\n")
        until(lambda: watch.hosts == [Host("h1", 2)] and not watch.problem)
        file.unlink()
        until(lambda: watch.problem)
        assert watch.hosts == [Host("h1", 2)]
    finally:
        watch.stop()
    until(lambda: not watch.is_alive())
