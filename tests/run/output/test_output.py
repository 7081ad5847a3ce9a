"""What ranks print, from the pipe to the console and the files; and the tail of each."""

from __future__ import annotations

import io
import sys
import time

import pytest

from smddp_tf.run.output import output as output_module
from smddp_tf.run.output.output import Output
from tests.run.output.chained import CHAINED


def test_a_progress_bar_is_shown_as_it_goes(capsys, tmp_path) -> None:
    """As tqdm does it: a carriage return begins an update, and the last one is ended by a newline."""
    with Output(1, str(tmp_path)) as output:
        for percent in (1, 50):
            output.write(0, 1, f"\r {percent}%".encode())
        assert capsys.readouterr().err == "[0]<stderr>:  1%\r"
        output.write(0, 1, b"\r 100%\n")
    assert capsys.readouterr().err == "[0]<stderr>:  50%\r[0]<stderr>:  100%\n"
    assert (tmp_path / "rank.0" / "stderr").read_bytes() == b"\r 1%\r 50%\r 100%\n"


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
            begin = time.thread_time()  # others may compute meanwhile
            for _ in range(100):
                output.write(0, 0, update)
            seconds.append(time.thread_time() - begin)
            assert sys.stdout.getvalue().count("x" * 99) == 100
            assert sum(map(len, output._partial.values())) < 1000
    assert seconds[1] < 20 * seconds[0] + 0.1
    assert output.tail_of(0) == ["x" * 99]  # of all of them only the last state


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
