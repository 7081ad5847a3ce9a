"""Lines, and updates that draw over them, from the bytes that a rank writes; and its last traceback."""

from __future__ import annotations

import itertools

from smddp_tf.run.output.lines import LineSplitter, Segment, last_traceback
from smddp_tf.run.output.output import Output
from tests.run.output.chained import CHAINED


def test_last_traceback() -> None:
    assert last_traceback([*CHAINED, ""]) == [*CHAINED[1:], ""]
    assert last_traceback(["Traceback (most recent call last):", "  old", "E: 1", *CHAINED]) == CHAINED[1:]
    assert last_traceback(["no", "traceback"]) == []
    with Output(1) as output:
        output.write(0, 0, b"only\nthis\n")
        assert output.tail_of(0) == ["only", "this"]


# --- lines that draw over themselves ---


def pieces_of(*chunks: bytes) -> list[Segment]:
    segments = LineSplitter()
    return [*itertools.chain.from_iterable(map(segments.feed, chunks)), segments.unfinished()]


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
    segments = LineSplitter()
    assert segments.feed("█".encode()[:2]) == []
    assert segments.feed(b"", final=True) == []
    assert segments.unfinished().text == "\N{REPLACEMENT CHARACTER}"


def test_a_line_that_never_ends_is_bounded() -> None:
    segments = LineSplitter()
    shown = 0
    for _ in range(100):
        found = segments.feed(b"." * 5000)
        shown += sum(len(segment.text) for segment in found)
        assert len(segments) < 50_000
        assert all(segment.end == "" for segment in found)
    assert shown + len(segments) == 500_000
