"""Arrangements of ranks on pretended hosts: {1, 2, 3, 4, 7, 8} ranks, 1, 2 and 4 hosts, and uneven ones."""

from __future__ import annotations


def hosts(*ranks_per_host: int) -> list[str]:
    """One host name per rank: hosts(2, 1) is ["h0", "h0", "h1"]."""
    return [f"h{host}" for host, ranks in enumerate(ranks_per_host) for _ in range(ranks)]


LAYOUTS = {
    "1": hosts(1),
    "2": hosts(2),
    "1+1": hosts(1, 1),
    "3": hosts(3),
    "2+1": hosts(2, 1),
    "4": hosts(4),
    "2+2": hosts(2, 2),
    "1+1+1+1": hosts(1, 1, 1, 1),
    "interleaved 2+2": ["h0", "h1", "h0", "h1"],
    "7": hosts(7),
    "1+4+2": hosts(1, 4, 2),
    "8": hosts(8),
    "4+4": hosts(4, 4),
    "2+2+2+2": hosts(2, 2, 2, 2),
    "5+3": hosts(5, 3),
}
