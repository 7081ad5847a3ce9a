"""The meeting at rank 0, between threads that are ranks."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from smddp_tf.exceptions import LaunchError
from smddp_tf.link.channel import Kind
from smddp_tf.link.client import ControlClient
from smddp_tf.rendezvous import meeting
from smddp_tf.rendezvous.meeting import World, meet
from smddp_tf.rendezvous.starters import Start
from tests.support.mpirun import free_port


def together(*starts: Start, seconds: float = 20.0, secrets: dict[int, str] | None = None) -> list[Any]:
    """What each gets: its world, or its error."""

    def one(number: int) -> World | LaunchError:
        try:
            return meet(starts[number], {meeting.SECRET: (secrets or {}).get(number, "s")}, seconds)
        except LaunchError as error:
            return error

    with ThreadPoolExecutor(len(starts)) as pool:
        return list(pool.map(one, range(len(starts))))


def starts_of(size: int, *ranks: int) -> list[Start]:
    port = free_port()
    return [Start(rank, size, "127.0.0.1", port, "RANK and WORLD_SIZE") for rank in ranks]


@pytest.fixture(autouse=True)
def no_file_is_left():
    before = len(os.listdir("/proc/self/fd"))
    yield
    assert len(os.listdir("/proc/self/fd")) <= before + 1  # of a selector that waits to be collected


def test_all_learn_where_all_listen() -> None:
    worlds = together(*starts_of(3, 2, 0, 1))
    addresses, keys = {tuple(world[1]) for world in worlds}, {world[2] for world in worlds}
    assert len(addresses) == len(keys) == 1
    assert len(keys.pop()) == 16
    (listed,) = addresses
    for rank, _, _, listener in worlds:
        with socket.socket(fileno=listener) as mine:
            host, port = listed[rank].rsplit(":", 1)
            assert int(port) == mine.getsockname()[1]
            with socket.create_connection((host, int(port)), timeout=5):
                mine.settimeout(5)
                mine.accept()[0].close()


def test_each_job_has_a_key_of_its_own() -> None:
    keys = set()
    for _ in range(2):
        for world in together(*starts_of(2, 0, 1)):
            keys.add(world[2])
            os.close(world[3])
    assert len(keys) == 2


def test_rank_0_may_come_last() -> None:
    late, early = starts_of(2, 0, 1)
    found: list[Any] = []
    first = threading.Thread(target=lambda: found.extend(together(early)))
    first.start()
    first.join(1.0)
    found += together(late)
    first.join(20)
    assert found[0][1] == found[1][1]
    for world in found:
        os.close(world[3])


def test_who_is_missing_is_named_on_every_rank() -> None:
    answers = together(*starts_of(4, 0, 2), seconds=1.5)
    for answer in answers:
        assert "missing on rank 1, 3 of 4 (RANK and WORLD_SIZE)" in str(answer)


def test_what_a_rank_waits_for_is_said_while_it_waits(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(meeting, "_NOTICE_SECONDS", 0.4)
    zero, one = starts_of(3, 0, 1)
    together(zero, one, seconds=2.0)
    together(starts_of(2, 1)[0], seconds=2.0)
    lines = capfd.readouterr().err.splitlines()
    by_zero, by_one = lines
    assert by_zero.startswith("smddp_tf [rank 0] warning: hvd.init() has waited for")
    assert by_zero.endswith("missing on rank 2 of 3 (RANK and WORLD_SIZE)")
    assert by_one.startswith("smddp_tf [rank 1] warning: hvd.init() has waited for")
    assert "rank 0 is not met at 127.0.0.1" in by_one


def test_a_rank_that_was_ended_while_it_waited_may_come_again() -> None:
    zero, one = starts_of(3, 0, 1)
    two = Start(2, 3, zero.host, zero.port, zero.source)
    found: list[Any] = []
    first = threading.Thread(target=lambda: found.extend(together(zero)))
    first.start()
    client = ControlClient(f"127.0.0.1:{zero.port}", "s", 10)
    client.send(Kind.HELLO, json.dumps({"rank": 1, "size": 3, "port": 1, "host": "ended"}).encode())
    client.close()
    time.sleep(0.7)
    found += together(one, two)
    first.join(20)
    assert len({tuple(world[1]) for world in found}) == 1
    for world in found:
        os.close(world[3])


def test_without_rank_0_the_place_is_named() -> None:
    (start,) = starts_of(2, 1)
    (answer,) = together(start, seconds=1.0)
    assert f"did not meet rank 0 at 127.0.0.1:{start.port} within 1 s" in str(answer)
    assert f"(SMDDP_START_TIMEOUT): 127.0.0.1:{start.port}: Connection refused. Do all" in str(answer)
    for words in ("smddprun", "--network-interfaces"):  # no launcher of ours has started these ranks
        assert words not in str(answer)


def test_two_processes_of_one_rank_are_an_error_on_every_rank() -> None:
    for answer in together(*starts_of(3, 0, 1, 1)):
        assert "Two processes are rank 1" in str(answer)


def test_ranks_that_do_not_agree_on_their_number() -> None:
    zero, one = starts_of(2, 0, 1)
    for answer in together(zero, Start(1, 3, one.host, one.port, one.source)):
        assert "rank 0 has 2 ranks, rank 1 on" in str(answer)
        assert str(answer).endswith("has 3.")


def test_who_does_not_know_the_secret_does_not_take_part() -> None:
    zero, stranger = together(*starts_of(2, 0, 1), seconds=2.0, secrets={1: "other"})
    assert "missing on rank 1 of 2" in str(zero)
    assert "SMDDP_SECRET" in str(stranger)


def test_a_port_in_use_is_named() -> None:
    with contextlib.closing(socket.create_server(("", 0))) as other:
        port = other.getsockname()[1]
        (answer,) = together(Start(0, 2, "127.0.0.1", port, "RANK and WORLD_SIZE"), seconds=1.0)
    assert f"port {port}" in str(answer)
    assert "SMDDP_PORT" in str(answer)


def test_addresses_that_only_lead_to_rank_0s_own_host_are_replaced() -> None:
    came = {
        0: {"port": 1, "address": "10.0.0.1"},
        1: {"port": 2, "address": "127.0.1.1"},
        2: {"port": 3, "address": "10.0.0.2"},
        3: {"port": 4, "address": "fd00::1"},
    }
    assert meeting._addresses(came) == ["10.0.0.1:1", "10.0.0.1:2", "10.0.0.2:3", "[fd00::1]:4"]
