"""Network interfaces of a job, and hosts without an address."""

from __future__ import annotations

import socket
import subprocess

import pytest

from smddp_tf.run.hosts import network
from smddp_tf.run.hosts.hosts import NotStarted
from smddp_tf.run.hosts.network import choose
from tests.run.run_dry import DOCKER, ETH0, LO


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


def test_interfaces() -> None:
    all_three = [LO, DOCKER, ETH0]
    assert choose(all_three, None).include == ("lo",)
    near = choose(all_three, ["10.0.0.2", "10.0.0.3"])
    assert (near.include, near.name, near.address) == (("10.0.0.0/24",), "eth0", "10.0.0.1")
    far = choose(all_three, ["10.0.0.2", "192.168.7.7"])
    assert (far.include, far.exclude, far.name) == ((), ("lo", "docker0"), "eth0")
    unknown = choose(all_three, [])
    assert (unknown.include, unknown.exclude) == ((), ("lo", "docker0"))
    # A host that only docker's network seems to lead to is not reached through it.
    assert choose(all_three, ["172.17.0.9"]).exclude == ("lo", "docker0")
    wanted = choose(all_three, ["10.0.0.2"], ["docker0"])
    assert (wanted.include, wanted.address) == (("docker0",), "172.17.0.1")
