"""What ranks print: lines, progress bars, files, the tail."""

from __future__ import annotations

import io
import itertools
import sys
import time

import pytest

from smddp_tf.run.output import output as output_module
from smddp_tf.run.output.console import Console
from smddp_tf.run.output.lines import Piece, Pieces, last_traceback
from smddp_tf.run.output.output import Output

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


def test_last_traceback() -> None:
    assert last_traceback([*CHAINED, ""]) == [*CHAINED[1:], ""]
    assert last_traceback(["Traceback (most recent call last):", "  old", "E: 1", *CHAINED]) == CHAINED[1:]
    assert last_traceback(["no", "traceback"]) == []
    with Output(1) as output:
        output.write(0, 0, b"only\nthis\n")
        assert output.tail_of(0) == ["only", "this"]


# --- lines that draw over themselves ---


def pieces_of(*chunks: bytes) -> list[Piece]:
    pieces = Pieces()
    return [*itertools.chain.from_iterable(map(pieces.feed, chunks)), pieces.unfinished()]


def test_pieces_of_lines_and_updates() -> None:
    assert pieces_of(b"\r 1%\r 2%\r\nnext\n\nrest") == [
        ("", "\r"), (" 1%", "\r"), (" 2%", "\n"), ("next", "\n"), ("", "\n"), ("rest", ""),
    ]  # fmt: skip
    # A separator of lines for str.splitlines is none for a terminal.
    assert pieces_of("a\x0bb\u2028c\n".encode()) == [("a\x0bb\u2028c", "\n"), ("", "")]


def test_characters_may_be_cut_anywhere() -> None:
    text = "█▏ 1%\r█▉ 2%\n€\xff"
    whole = text.encode()
    for cut in range(len(whole) + 1):
        assert pieces_of(whole[:cut], whole[cut:]) == [("█▏ 1%", "\r"), ("█▉ 2%", "\n"), ("€\xff", "")], cut
    one_by_one = [whole[at : at + 1] for at in range(len(whole))]
    assert pieces_of(*one_by_one) == pieces_of(whole)
    pieces = Pieces()
    assert pieces.feed("█".encode()[:2]) == []
    assert pieces.feed(b"", final=True) == []
    assert pieces.unfinished().text == "\N{REPLACEMENT CHARACTER}"


def test_a_line_that_never_ends_is_bounded() -> None:
    pieces = Pieces()
    shown = 0
    for _ in range(100):
        found = pieces.feed(b"." * 5000)
        shown += sum(len(piece.text) for piece in found)
        assert len(pieces) < 50_000
        assert all(piece.end == "" for piece in found)
    assert shown + len(pieces) == 500_000


def test_a_progress_bar_is_shown_as_it_goes(capsys, tmp_path) -> None:
    """As tqdm does it: a carriage return begins an update, and the last one is ended by a newline."""
    with Output(1, str(tmp_path)) as output:
        for percent in (1, 50):
            output.write(0, 1, f"\r {percent}%".encode())
        assert capsys.readouterr().err == "[0]<stderr>:  1%\r"
        output.write(0, 1, b"\r 100%\n")
    assert capsys.readouterr().err == "[0]<stderr>:  50%\r[0]<stderr>:  100%\n"
    assert (tmp_path / "rank.0" / "stderr").read_bytes() == b"\r 1%\r 50%\r 100%\n"


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


def test_a_line_without_an_end_is_shown_after_a_moment(capsys, monkeypatch) -> None:
    now = [100.0]
    monkeypatch.setattr(output_module.time, "monotonic", lambda: now[0])
    with Output(2) as output:
        output.write(0, 0, b"loading ...")
        output.look_around()
        assert capsys.readouterr().out == ""
        now[0] += 1
        output.look_around()
        assert capsys.readouterr().out == "[0]<stdout>: loading ..."
        output.write(0, 0, b" done\n")  # goes on where it was
        output.write(0, 0, b"again ...")
        now[0] += 1
        output.look_around()
        output.write(1, 0, b"other\n")
        output.write(0, 0, b" done\n")
    assert capsys.readouterr().out == (
        " done\n[0]<stdout>: again ...\n[1]<stdout>: other\n[0]<stdout>:  done\n"
    )  # fmt: skip


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


def test_a_day_of_updates_costs_what_its_bytes_cost(monkeypatch) -> None:
    """Ten updates in a second, of 100 bytes, for a day; what is kept and what one more costs does not grow."""
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    update, seconds = b"\r" + b"x" * 99, []
    with Output(1) as output:
        for hours in (1, 23):
            for _ in range(hours * 36):
                output.write(0, 0, update * 1000)
            sys.stdout.seek(0)
            sys.stdout.truncate()
            begin = time.perf_counter()
            for _ in range(100):
                output.write(0, 0, update)
            seconds.append(time.perf_counter() - begin)
            assert sys.stdout.getvalue().count("x" * 99) == 100
            assert sum(map(len, output._partial.values())) < 1000
    assert seconds[1] < 20 * seconds[0] + 0.1
    assert output.tail_of(0) == ["x" * 99]  # of all of them only the last state


def test_a_console_that_cannot_encode_a_bar(monkeypatch) -> None:
    console = io.TextIOWrapper(io.BytesIO(), encoding="ascii", write_through=True)
    monkeypatch.setattr(sys, "stdout", console)
    with Output(1) as output:
        output.write(0, 0, "█ 1%\n".encode())
    assert console.buffer.getvalue() == b"[0]<stdout>: ? 1%\n"


# --- the tail ---


def test_the_traceback_that_ends_the_job_is_shown_once_and_last(capsys) -> None:
    with Output(2) as output:
        output.write(1, 1, ("begun\n" + "\n".join(CHAINED[1:]) + "\nand more\n").encode())
        output.write(0, 1, b"other\n")
        assert capsys.readouterr().err == "[1]<stderr>: begun\n[0]<stderr>: other\n"
        output.end_of_rank(1, last=True)
        output.end_of_rank(0)
        assert output.tail_of(1) == [*CHAINED[1:], "and more"]
    assert capsys.readouterr().err == ""


def test_a_traceback_that_ends_nothing_is_shown_in_its_turn(capsys, monkeypatch) -> None:
    now = [100.0]
    monkeypatch.setattr(output_module.time, "monotonic", lambda: now[0])
    with Output(4) as output:
        output.raises(3)  # it has said that it ends of it
        for rank in range(4):
            output.write(rank, 1, f"Traceback (most recent call last):\nE: {rank}\n".encode())
        output.end_of_rank(0)  # because of another one
        assert capsys.readouterr().err == "[0]<stderr>: Traceback (most recent call last):\n[0]<stderr>: E: 0\n"
        now[0] += 10
        output.look_around()
        shown = capsys.readouterr().err
        assert ("E: 1" in shown, "E: 3" in shown) == (True, False)
        output.end_of_rank(3, last=True)
        output.write(2, 1, b"goes on\n")
        assert output.tail_of(3) == ["Traceback (most recent call last):", "E: 3"]
    assert capsys.readouterr().err == "[2]<stderr>: goes on\n"


def test_what_is_kept_of_a_rank_is_bounded() -> None:
    with Output(1) as output:
        for number in range(3000):
            output.write(0, 0, f"{number} {'y' * 200}\n".encode())
        kept = output._tails[0]._kept
        assert sum(len(text) for _, text in kept) <= 1 << 16
        assert output.tail_of(0)[-1].startswith("2999 ")


_GREETINGS = (
    "WARNING: All log messages before absl::InitializeLog() is called are written to STDERR\n"
    "I0000 00:00:1795720310.235118    3698 port.cc:153] oneDNN custom operations are on. You may see\n"
)


@pytest.mark.parametrize("shown", [False, True])
def test_what_tensorflow_prints_at_import_is_shown_where_asked_for(capsys, shown: bool) -> None:
    """Warnings of the same library are shown in any case, and so is what looks like a note on standard output."""
    warning = "W0000 00:00:1795720339.979279    3861 local_rendezvous.cc:412] Local rendezvous is aborting\n"
    with Output(1, greetings=shown) as output:
        output.write(0, 1, (_GREETINGS + warning).encode())
        output.write(0, 0, _GREETINGS.encode())
        assert len(output.tail_of(0)) == (5 if shown else 3)
    printed = capsys.readouterr()
    assert printed.err.count("\n") == (3 if shown else 1)
    assert "Local rendezvous" in printed.err
    assert printed.out.count("\n") == 2


def test_a_newline_that_comes_late_makes_no_empty_line(capsys) -> None:
    """`print` may write a text and its newline apart, with lines of other ranks between them."""
    console = Console()
    console.show(0, 0, Piece("one", ""))
    console.show(1, 0, Piece("two", "\n"))
    console.show(0, 0, Piece("", "\n"))
    console.show(0, 0, Piece("", "\n"))
    console.flush()
    assert capsys.readouterr().out == "[0]<stdout>: one\n[1]<stdout>: two\n[0]<stdout>: \n"
