"""The pure functions of the elastic benchmark, and the batches of its worker."""

from __future__ import annotations

import io

import numpy as np
import pytest

pytest.importorskip("rich")
from rich.console import Console

from benchmarks import elastic, elastic_worker

EVENTS = """\
1000000000 trains 1 0 1
1200000000 commit 3 0 1
1800000000 commit 12 0 1
2200000000 commit 18 0 1
3000000000 trains 19 1 2
3100000000 trains 19 0 2
4000000000 commit 30 0 2
5000000000 comm"""


def test_events_are_read_and_one_that_is_not_complete_is_left_out():
    events = elastic.events_of(EVENTS)
    assert len(events) == 7
    assert events[4] == elastic.Event(3.0, "trains", 19, 1, 2)


def test_the_pace_is_that_of_the_commits_before_the_first_host():
    events = elastic.events_of(EVENTS)
    assert elastic.pace(events, 2.5) == pytest.approx((18 - 3) / 1.0)
    assert elastic.pace(events, 1.5) == 0.0
    assert elastic.committed(events, 2.0) == 12
    assert elastic.committed(events, 1.0) == 0


def test_effective_training_time():
    assert elastic.effective_ratio(90, 10.0, 18.0) == pytest.approx(0.5)
    assert elastic.effective_ratio(0, 10.0, 0.0) == 0.0


def test_the_first_batch_is_that_of_the_last_rank():
    events = elastic.events_of(EVENTS)
    assert elastic.first_batch(events, 2, 2.5) == 3.1
    assert elastic.first_batch(events[:5], 2, 2.5) is None  # rank 0 is not there yet
    assert elastic.first_batch(events, 1, 2.5) is None
    again = elastic.Event(9.0, "trains", 31, 0, 2), elastic.Event(9.5, "trains", 31, 1, 2)
    assert elastic.first_batch([*events[:5], *again], 2, 2.5) == 9.5  # the session before was lost at once


def test_the_others_wait_from_their_last_commit_to_the_first_batch():
    events = elastic.events_of(EVENTS)
    assert elastic.stalls(events) == [pytest.approx(3.1 - 2.2)]
    assert elastic.stalls(events[:4]) == []


def test_a_job_sees_sessions_that_begin_after_a_moment(tmp_path):
    job = elastic.Job(tmp_path)
    (tmp_path / "events").write_text(EVENTS)
    assert (tmp_path / "hosts").read_text() == "node0:1\n"
    job.name_hosts(0, 2)
    assert (tmp_path / "hosts").read_text() == "node0:1\nnode2:1\n"
    forever = 1e12  # the monotonic clock is beyond the events
    assert job.await_session(2, 2.5, forever) == pytest.approx(0.6)
    assert job.await_session(1, 0.5, forever) == pytest.approx(0.5)
    with (tmp_path / "events").open("a") as file:
        file.write("it 33 0 2\n6000000000 trains 34 0 1\n")
    assert [(event.what, event.batch) for event in job.events()[-3:]] == [
        ("commit", 30),
        ("commit", 33),
        ("trains", 34),
    ]
    assert job.await_session(1, 2.5, forever) == pytest.approx(3.5)
    job.ended.set_result((7, ""))
    with pytest.raises(elastic.JobEnded, match="exit code 7"):
        job.await_session(1, 6.5, forever)


def test_what_did_not_recover_is_said():
    rows = [
        elastic.Row("smddp_tf", 580.0, 19.5, 11000, 0.97, [4.0, 5.0], [0.2, 0.3], [6.0], [1.5, 1.0, 2.0], "right"),
        elastic.Row(
            "slower", 600.0, 19.0, 90, 0.1, [3.0], [2.0], [None, 41.0], [], "none", "it ended with exit code 1"
        ),
    ]
    text = io.StringIO()
    elastic.show(rows, 60.0, Console(file=text, width=220))
    ours, other = (
        next(line for line in text.getvalue().splitlines() if name in line) for name in ("smddp_tf", "slower")
    )
    assert "0.970 of 580 s" in ours
    assert "0.25 (0.30)" in ours
    assert "1.50 (2.00)" in ours
    assert "right" in ours
    assert "41.00 (41.00); 1 of 2 not within 60 s" in other
    assert "none; it ended with exit code 1" in other


def test_the_undisturbed_weights_are_those_of_any_shares():
    shares = np.zeros(elastic_worker.WIDTH)
    for batch in range(5):
        for rank in range(1 + batch % 3):
            shares += elastic_worker.rows_of(batch)[rank :: 1 + batch % 3].sum(axis=0)
    assert np.array_equal(shares, elastic_worker.undisturbed(5))
    assert np.any(shares != elastic_worker.undisturbed(4))
