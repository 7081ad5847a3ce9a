"""How the output of several ranks appears on one console."""

from __future__ import annotations

import io
import sys
import time

from smddp_tf.run.output.console import Console
from smddp_tf.run.output.lines import Segment
from smddp_tf.run.output.output import Output


def test_lines_are_whole_and_carry_the_rank(capsys, tmp_path) -> None:
    with Output(11, str(tmp_path)) as output:
        output.write(10, 0, b"one\ntw")
        output.write(2, 0, b"other\n")
        output.write(10, 0, b"o\n10%\r100%\r\nrest")
        output.write(10, 1, b"bad \xff\n")
    out, err = capsys.readouterr()
    assert out == (
        "[10]<stdout>: one\n[2]<stdout>: other\n[10]<stdout>: two\n"
        "[10]<stdout>: 10%\r[10]<stdout>: 100%\n[10]<stdout>: rest\n"
    )
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
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    with Output(1) as output:
        output.write(0, 0, b"plain [not markup] text\n")
    out = capsys.readouterr().out
    assert "\x1b[" in out
    assert "plain [not markup] text" in out
    assert "stdout" not in out


def test_keras_bars_leave_no_backspaces(capsys) -> None:
    with Output(1) as output:
        output.write(0, 0, b"1/2 [=>]" + b"\b" * 8 + b"\r" + b"2/2 [==]\n")
    assert capsys.readouterr().out == "[0]<stdout>: 1/2 [=>]\r[0]<stdout>: 2/2 [==]\n"


def test_every_line_of_a_file_is_one_ranks(capsys) -> None:
    with Output(2) as output:
        output.write(0, 0, b"10%\r")
        output.write(1, 0, b"hello\n")
        output.write(0, 0, b"20%\r")
        output.write(0, 0, b"\n")  # a newline that was cut from its carriage return
        output.write(1, 0, b"30%\r")
        output.write(0, 0, b"bye\n")
        output.write(1, 0, b"\n")  # its line has ended already
        output.write(1, 0, b"40%\r")
    assert capsys.readouterr().out.split("\n") == [
        "[0]<stdout>: 10%\r", "[1]<stdout>: hello", "[0]<stdout>: 20%\r", "[1]<stdout>: 30%\r", "[0]<stdout>: bye",
        "[1]<stdout>: 40%\r", "",
    ]  # fmt: skip


def test_bars_of_several_ranks_share_a_line_of_a_terminal(capsys, monkeypatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("NO_COLOR", "1")
    with Output(2) as output:
        output.write(0, 0, b"a longer bar 10%\r")
        output.write(1, 0, b"20%\r")
        output.write(0, 0, b"\x1b[Aup and \x1b[31mred\n")
    out = capsys.readouterr().out
    assert out == "[0] a longer bar 10%\r\x1b[K[1] 20%\r\x1b[K[0] up and \x1b[31mred\x1b[0m\n"


def test_a_console_that_cannot_encode_a_bar(monkeypatch) -> None:
    console = io.TextIOWrapper(io.BytesIO(), encoding="ascii", write_through=True)
    monkeypatch.setattr(sys, "stdout", console)
    with Output(1) as output:
        output.write(0, 0, "█ 1%\n".encode())
    assert console.buffer.getvalue() == b"[0]<stdout>: ? 1%\n"


def test_a_newline_that_comes_late_makes_no_empty_line(capsys) -> None:
    """`print` may write a text and its newline apart, with lines of other ranks between them."""
    console = Console()
    console.show(0, 0, Segment("one", ""))
    console.show(1, 0, Segment("two", "\n"))
    console.show(0, 0, Segment("", "\n"))
    console.show(0, 0, Segment("", "\n"))
    console.flush()
    assert capsys.readouterr().out == "[0]<stdout>: one\n[1]<stdout>: two\n[0]<stdout>: \n"
