"""Which network interfaces the ranks use: those that lead to the other hosts, never docker's and the like."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import subprocess
from collections.abc import Sequence
from typing import NamedTuple

import psutil

from smddp_tf.run.hosts.hosts import NotStarted

_VIRTUAL = (
    "docker", "br-", "veth", "virbr", "vmnet", "vboxnet", "cni", "flannel", "cali", "kube", "podman", "lxc", "lxd",
    "tun", "tap", "wg", "tailscale", "zt", "utun", "ifb", "dummy", "sit", "nodelocaldns",
)  # fmt: skip
_ASK_SECONDS = 10.0


class Interface(NamedTuple):
    """A network interface of this host that is up and has an IPv4 address."""

    name: str
    address: str
    netmask: str

    @property
    def network(self) -> ipaddress.IPv4Network:
        return ipaddress.IPv4Network(f"{self.address}/{self.netmask}", strict=False)

    @property
    def is_loopback(self) -> bool:
        return self.name == "lo" or ipaddress.IPv4Address(self.address).is_loopback

    @property
    def is_virtual(self) -> bool:
        """True when, judging by its name, it does not lead outside of this host."""
        return self.name.startswith(_VIRTUAL)


class Choice(NamedTuple):
    """The network interfaces that MPI is to use.

    Attributes:
        include: names, or networks such as 10.0.0.0/24, which hold whatever an interface is called on other hosts.
        exclude: names, where nothing better is known. At most one of both is not empty.
        name: this host's interface, where a single name is needed.
        address: this host's address towards the others.
    """

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    name: str = ""
    address: str = ""


def choose(interfaces: Sequence[Interface], remote: Sequence[str] | None, wanted: Sequence[str] = ()) -> Choice:
    """The interfaces for a job with hosts at the IPv4 addresses `remote` besides this one; None: there are no others.

    Without other hosts: the loopback interface. With `wanted` (names or networks): those. When all other hosts are on a
    network of one of our interfaces: that network. Else, behind a router or where no address is known: everything that
    is not virtual.
    """
    if wanted:
        first = next((one for one in interfaces if one.name in wanted or str(one.network) in wanted), None)
        return Choice(tuple(wanted), (), first.name if first else wanted[0], first.address if first else "")
    if remote is None:
        loopback = next((one.name for one in interfaces if one.is_loopback), "lo")
        return Choice((loopback,), (), loopback, "127.0.0.1")
    outside = [one for one in interfaces if not one.is_loopback and not one.is_virtual]
    for one in outside if remote else ():
        if all(ipaddress.IPv4Address(address) in one.network for address in remote):
            return Choice((str(one.network),), (), one.name, one.address)
    virtual = tuple(one.name for one in interfaces if one.is_loopback or one.is_virtual)
    only = outside[0] if len(outside) == 1 else None
    return Choice((), virtual or ("lo",), only.name if only else "", only.address if only else "")


def local_interfaces() -> list[Interface]:
    """This host's interfaces that are up."""
    addresses = psutil.net_if_addrs()
    found = {name: one for name, of_it in addresses.items() for one in reversed(of_it) if one.family == socket.AF_INET}
    up = [name for name, state in psutil.net_if_stats().items() if state.isup and name in found]
    return [Interface(name, found[name].address, found[name].netmask) for name in up]


def check_hosts(names: Sequence[str]) -> None:
    """Raises NotStarted for hosts that have no address and are not known to ssh either."""
    unknown = tuple(name for name in names if not _is_known(name))
    if unknown:
        raise NotStarted(
            f"There is no address for the host{'s' if len(unknown) > 1 else ''} {', '.join(unknown)} (-H, --hostfile, "
            "or Slurm). Expected names that this host's DNS, /etc/hosts or ~/.ssh/config knows, or addresses. Look: "
            f"getent hosts {unknown[0]}.", unknown,
        )  # fmt: skip


def _is_known(name: str) -> bool:
    with contextlib.suppress(OSError):
        return bool(socket.getaddrinfo(name, None))
    try:
        shown = subprocess.run(["ssh", "-G", name], capture_output=True, text=True, timeout=_ASK_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    found = dict(line.split(" ", 1) for line in shown.stdout.splitlines() if " " in line)
    other = found.get("hostname", name)
    return bool(found.keys() & {"proxyjump", "proxycommand"}) or (other != name and bool(resolve([other])))


def resolve(names: Sequence[str]) -> list[str]:
    """The IPv4 addresses of those hosts that this one can resolve."""
    found = []
    for name in names:
        with contextlib.suppress(OSError):  # mpirun, or an agent that stands in for ssh, may know better
            found.append(str(socket.getaddrinfo(name, None, socket.AF_INET)[0][4][0]))
    return found
