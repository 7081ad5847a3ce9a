"""Hosts and host files."""

from __future__ import annotations

import pytest

from smddp_tf.exceptions import LaunchError
from smddp_tf.run.hosts.hosts import Host, hosts_of_ranks, is_this_host, parse_host_file, parse_hosts


def test_hosts() -> None:
    assert parse_hosts("a:2, b ,a:1,10.0.0.1:4") == [Host("a", 3), Host("b", 1), Host("10.0.0.1", 4)]
    assert parse_hosts("a,b:1", default_slots=3) == [Host("a", 3), Host("b", 1)]
    assert hosts_of_ranks([Host("a", 2), Host("b", 2)], 3) == ["a", "a", "b"]
    for text in ("", ",", ":2", "a:", "a:0", "a:-1"):
        with pytest.raises(LaunchError):
            parse_hosts(text)


def test_host_file(tmp_path) -> None:
    file = tmp_path / "hosts"
    file.write_text("# ours\n a slots=4 # first\n\nb\nc:2\na slots = 1 max_slots=8\n")
    assert parse_host_file(file) == [Host("a", 5), Host("b", 1), Host("c", 2)]
    for text in ("", "a slots=x", "a cores=2", "a slots"):
        file.write_text(text)
        with pytest.raises(LaunchError):
            parse_host_file(file)


def test_this_host() -> None:
    import socket

    assert all(is_this_host(name) for name in ("localhost", "127.0.0.1", socket.gethostname()))
    assert not is_this_host("203.0.113.77")
