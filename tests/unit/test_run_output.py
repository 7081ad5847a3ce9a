"""What ranks print: lines, files, last words; and the channel it comes through."""

from __future__ import annotations

import socket
import threading
import time

import pytest

from smddp_tf.run.channel import ADDRESS, KEY, PAYLOAD, STDOUT, TASK, Caller, Switchboard
from smddp_tf.run.errors import LaunchError
from smddp_tf.run.output import Output, last_words

CHAINED = [
    "noise",
    "Traceback (most recent call last):",
    '  File "a.py", line 1, in f',
    "KeyError: 1",
    "",
    "During handling of the above exception, another exception occurred:",
    "",
    "Traceback (most recent call last):",
    '  File "b.py", line 2, in g',
    "ValueError: two",
]


def test_lines_are_whole_and_carry_the_rank(capsys, tmp_path) -> None:
    with Output(11, str(tmp_path)) as output:
        output.write(10, 0, b"one\ntw")
        output.write(2, 0, b"other\n")
        output.write(10, 0, b"o\n10%\r100%\r\nrest")
        output.write(10, 1, b"bad \xff\n")
    out, err = capsys.readouterr()
    assert out == "[10]<stdout>: one\n[2]<stdout>: other\n[10]<stdout>: two\n[10]<stdout>: 100%\n[10]<stdout>: rest\n"
    assert err == "[10]<stderr>: bad \N{REPLACEMENT CHARACTER}\n"
    assert (tmp_path / "rank.10" / "stdout").read_bytes() == b"one\ntwo\n10%\r100%\r\nrest"
    assert (tmp_path / "rank.02" / "stdout").read_bytes() == b"other\n"
    assert (tmp_path / "rank.10" / "stderr").read_bytes() == b"bad \xff\n"


def test_timestamps(capsys) -> None:
    with Output(1, timestamps=True) as output:
        output.write(0, 0, b"x\n")
    stamp, _, rest = capsys.readouterr().out.partition(" [0]<stdout>: ")
    assert time.strptime(stamp, "%Y-%m-%d %H:%M:%S")
    assert rest == "x\n"


def test_colours_on_a_terminal(capsys, monkeypatch) -> None:
    import sys

    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    with Output(1) as output:
        output.write(0, 0, b"plain [not markup] text\n")
    out = capsys.readouterr().out
    assert "\x1b[" in out
    assert "plain [not markup] text" in out
    assert "stdout" not in out


def test_last_words() -> None:
    assert last_words([*CHAINED, ""]) == [*CHAINED[1:], ""]
    assert last_words(["Traceback (most recent call last):", "  old", "E: 1", *CHAINED]) == CHAINED[1:]
    assert last_words(["no", "traceback"]) == []
    with Output(1) as output:
        output.write(0, 0, b"only\nthis\n")
        assert output.last_words_of(0) == ["only", "this"]


def frames_until(board: Switchboard, count: int) -> list:
    found, give_up_at = [], time.monotonic() + 1
    while len(found) < count and time.monotonic() < give_up_at:
        found += board.frames(0.05)
    return found


def in_thread(board: Switchboard, work) -> list:
    """What `work` returns or raises while the board listens."""
    results: list = []

    def target() -> None:
        try:
            results.append(work())
        except Exception as error:
            results.append(error)

    thread = threading.Thread(target=target)
    thread.start()
    give_up_at = time.monotonic() + 20
    while thread.is_alive() and time.monotonic() < give_up_at:
        for frame in board.frames(0.05):
            if frame.kind == TASK:
                board.send(frame.peer, PAYLOAD, b"work" * 100_000)
    thread.join(1)
    return results


def test_channel_both_ways() -> None:
    with Switchboard(["127.0.0.1"]) as board:
        environment = {ADDRESS: f"127.0.0.1:1,{board.addresses}", KEY: board.key}  # nobody listens on port 1

        def work() -> bytes:
            caller = Caller(environment)
            caller.send(TASK, b"0")
            return caller.receive(10)

        assert in_thread(board, work) == [b"work" * 100_000]


def test_channel_does_not_trust_strangers() -> None:
    with Switchboard(["127.0.0.1"]) as board:
        [error] = in_thread(board, lambda: Caller({ADDRESS: board.addresses, KEY: "guessed"}))
        assert isinstance(error, LaunchError)
        stranger = socket.create_connection(("127.0.0.1", int(board.addresses.rpartition(":")[2])))
        stranger.sendall(b"x" * 48 + bytes([STDOUT]) + (4).to_bytes(8, "big") + b"evil")
        assert frames_until(board, 1) == []
        stranger.close()
        assert board.connected == 0


def test_a_rank_does_not_trust_another_launcher() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def pretend() -> None:
            link, _ = server.accept()
            link.sendall(b"n" * 16)
            link.recv(48)
            link.sendall(b"p" * 32)

        thread = threading.Thread(target=pretend)
        thread.start()
        with pytest.raises(LaunchError, match="not this job's launcher"):
            Caller({ADDRESS: f"127.0.0.1:{server.getsockname()[1]}", KEY: "key"})
        thread.join(10)
