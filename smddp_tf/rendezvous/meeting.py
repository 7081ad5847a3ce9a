"""The meeting of a job's ranks at rank 0: each tells where it listens, and learns where all others do.

Messages are signed with the job's secret, SMDDP_SECRET. Without one, whoever reaches rank 0's port while the job starts
can take part, as with torchrun's store.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import math
import os
import secrets
import socket
import sys
import time
from collections.abc import Mapping
from typing import Any

from smddp_tf.exceptions import LaunchError
from smddp_tf.link.channel import Kind
from smddp_tf.link.client import ControlClient
from smddp_tf.link.server import ControlServer, listen
from smddp_tf.rendezvous.starters import PORT, Start

SECRET = "SMDDP_SECRET"
_LATER_SECONDS = 5.0  # the others wait longer than rank 0, which tells them who is missing
_NOTICE_SECONDS = 5.0

World = tuple[int, list[str], bytes, int]


def meet(start: Start, environment: Mapping[str, str], seconds: float) -> World:
    """Meets the other ranks.

    Args:
        start: this process in its job.
        environment: of this process, for the job's secret.
        seconds: within which all must have come.

    Returns:
        For `_core.init`: the rank, the addresses of all, the key of their connections, this rank's listening socket.

    Raises:
        LaunchError: not all have come, two claim the same rank, or they do not agree on the number of ranks.
    """
    with listen("") as listener:
        mine = {"rank": start.rank, "size": start.size, "port": listener.getsockname()[1], "host": socket.gethostname()}
        secret = environment.get(SECRET, "")
        answer = _host(start, mine, secret, seconds) if start.rank == 0 else _attend(start, mine, secret, seconds)
        if "error" in answer:
            raise LaunchError(answer["error"])
        return start.rank, answer["addresses"], connection_key(secret, answer["nonce"]), os.dup(listener.fileno())


def _host(start: Start, mine: Mapping[str, Any], secret: str, seconds: float) -> dict[str, Any]:
    """Rank 0's part: returns what it has sent to all others."""
    try:
        server = ControlServer([""], start.size, start.port, secret)
    except LaunchError as error:
        raise LaunchError(f"{error} Where another program uses port {start.port}, choose one: {PORT}.") from None
    until, notice = time.monotonic() + seconds, _Notice(start)
    with contextlib.closing(server):
        came: dict[int, dict[str, Any]] = {0: dict(mine)}
        peers: dict[int, int] = {}  # the rank of each connection
        answer: dict[str, Any] = {}
        while len(came) < start.size and not answer:
            for frame in server.frames(0.2):
                if frame.kind == Kind.HELLO:
                    hello = json.loads(frame.body)
                    hello["address"], here = server.addresses_of(frame.peer)
                    answer = answer or _refusal(start, came, hello)
                    came.setdefault(hello["rank"], hello)
                    peers[frame.peer] = hello["rank"]
                    if not is_loopback(here):
                        came[0]["address"] = here
            for peer in [peer for peer in peers if peer not in server.connected]:
                del came[peers.pop(peer)]  # it may come again
            notice.look(_missing(start, came))
            if time.monotonic() > until:
                answer = {
                    "error": f"Not every rank called hvd.init() within {seconds:.0f} s (SMDDP_START_TIMEOUT): "
                    f"{_missing(start, came)}. They were awaited at {start.host}:{start.port}."
                }
        answer = answer or {"addresses": _addresses(came), "nonce": secrets.token_hex(32)}
        for peer in peers:
            server.send(peer, Kind.PAYLOAD, json.dumps(answer).encode())
    return answer


def _attend(start: Start, mine: Mapping[str, Any], secret: str, seconds: float) -> dict[str, Any]:
    """The part of the other ranks: returns rank 0's answer."""
    until, notice = time.monotonic() + seconds, _Notice(start)
    where = f"{start.host}:{start.port}"
    why = ""
    while (left := until - time.monotonic()) > 0:
        try:
            client = ControlClient(where, secret, min(left, _NOTICE_SECONDS))
            with contextlib.closing(client):
                client.send(Kind.HELLO, json.dumps(mine).encode())
                return dict(json.loads(client.receive(left + _LATER_SECONDS)))
        except OSError as error:  # rank 0 may not have come yet, or another program listens there
            why = str(error)
            notice.look(f"rank 0 is not met at {where} ({start.source}): {why}")
            time.sleep(0.2)
    raise LaunchError(
        f"Rank {start.rank} ({start.source}) did not meet rank 0 at {where} within {seconds:.0f} s "
        f"(SMDDP_START_TIMEOUT): {why}. Do all processes call hvd.init(), is that rank 0's host, may this one connect "
        f"to it, and have all the same {SECRET}?"
    )


def _refusal(start: Start, came: Mapping[int, Mapping[str, Any]], hello: Mapping[str, Any]) -> dict[str, Any]:
    rank, size, host = hello["rank"], hello["size"], hello["host"]
    if size != start.size:
        return {"error": f"The ranks do not agree: rank 0 has {start.size} ranks, rank {rank} on {host} has {size}."}
    if not 0 <= rank < size:
        return {"error": f"A process on {host} says that it is rank {rank} of {size}."}
    if rank in came:
        return {"error": f"Two processes are rank {rank}: on {came[rank]['host']} and on {host} ({start.source})."}
    return {}


def _missing(start: Start, came: Mapping[int, object]) -> str:
    missing = ", ".join(str(rank) for rank in range(start.size) if rank not in came)
    return f"missing on rank {missing} of {start.size} ({start.source})"


class _Notice:
    """Says once, when a rank has waited for 5 s, what it waits for."""

    def __init__(self, start: Start) -> None:
        self._rank, self._due = start.rank, time.monotonic() + _NOTICE_SECONDS

    def look(self, what: str) -> None:
        if time.monotonic() > self._due:
            self._due = math.inf
            line = f"smddp_tf [rank {self._rank}] warning: hvd.init() has waited for {_NOTICE_SECONDS:.0f} s: {what}"
            print(line, file=sys.stderr, flush=True)


def connection_key(secret: str, nonce: str) -> bytes:
    """The 16 bytes with which the ranks of one session sign, from the job's secret and the session's nonce in hex."""
    return hmac.new(secret.encode(), bytes.fromhex(nonce), "sha256").digest()[:16]


def _addresses(came: Mapping[int, Mapping[str, Any]]) -> list[str]:
    """Where each rank listens. One on rank 0's host may have come by an address that only leads there."""
    here = came[0].get("address", "127.0.0.1")
    return [endpoint(rank.get("address", here), rank["port"], here) for _, rank in sorted(came.items())]


def endpoint(host: str, port: int, here: str) -> str:
    """`host:port`, with `here` in place of an address that only leads to the host that has seen it."""
    host = here if is_loopback(host) else host
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_loopback(address: str) -> bool:
    """Whether it leads to the same host only."""
    return address.startswith("127.") or address == "::1"
