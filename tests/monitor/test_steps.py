"""Where the time of a step goes."""

from __future__ import annotations

import time

import pytest

from smddp_tf.monitor import files, steps


def test_the_time_of_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two steps belongs to the later one, after a pause to none; the engine's counters are differences."""
    counters = iter([(10, 5), (2_000_000_010, 500_000_005), (3_000_000_010, 500_000_005), (7, 3), (8, 3)])
    monkeypatch.setattr(steps, "_counters", lambda: next(counters))
    found: list[files.Step] = []
    times = steps.StepTimes(found.append)
    assert times.begin() == 0.0
    time.sleep(0.02)
    times.end(0.01, 5, 0)
    time.sleep(0.03)
    assert times.begin() >= 0.03
    times.end(0.03, 4, 0, steps=3, per_call=4)
    times.pause()
    time.sleep(0.05)
    assert times.begin() == 0.0
    times.end(0.0, None, 1)
    assert [step["samples"] for step in found] == [5, 2, 1, 1, None]
    assert [step["epoch"] for step in found] == [0, 0, 0, 0, 1]
    assert found[0]["seconds"] >= 0.02
    assert found[1]["seconds"] == pytest.approx(found[3]["seconds"])
    assert 3 * found[1]["seconds"] >= 0.03
    assert found[4]["seconds"] < 0.05
    assert (found[0]["reducing"], found[0]["exposed"]) == (2.0, 0.5)
    assert (3 * found[1]["reducing"], found[1]["exposed"]) == (1.0, 0.0)
    assert times.sums[:2] == [5, 9]
    assert times.sums[2] == pytest.approx(sum(step["seconds"] for step in found))


def test_steps_that_are_noted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has its own length, and a part of the rest by that."""
    counters = iter([(0, 0), (800_000_000, 400_000_000)])
    monkeypatch.setattr(steps, "_counters", lambda: next(counters))
    found: list[files.Step] = []
    times = steps.StepTimes(found.append)
    times.begin()
    began = time.perf_counter()
    time.sleep(0.08)
    now = time.perf_counter()
    times.end(0.04, 8, 2, steps=3, marks=[began + 0.01, began + 0.07])
    assert [step["seconds"] for step in found] == pytest.approx([0.01, 0.06, now - began - 0.07], abs=0.005)
    assert found[1]["time"] - found[0]["time"] == pytest.approx(0.06, abs=1e-3)
    for step in found:
        assert step["input"] / step["seconds"] == pytest.approx(0.04 / sum(each["seconds"] for each in found))
        assert step["reducing"] == pytest.approx(2 * step["exposed"])
    assert sum(step["exposed"] for step in found) == pytest.approx(0.4)
    assert [step["samples"] for step in found] == [3, 3, 2]


def test_calls_of_several_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seven steps in calls of three; then six and a call that has found the end of the data."""
    monkeypatch.setattr(steps, "_counters", lambda: (0, 0))
    for count, lengths in (7, [0.01] * 3 + [0.02] * 3 + [0.03]), (6, [0.01] * 3 + [0.02] * 3):
        found: list[files.Step] = []
        times = steps.StepTimes(found.append)
        times.begin()
        began = time.perf_counter()
        time.sleep(0.12)
        times.end(0.06, count, 0, steps=count, marks=[began + 0.03, began + 0.09], per_call=3)
        assert [step["seconds"] for step in found] == pytest.approx(lengths, abs=0.01)
        assert times.sums[:2] == [count, count]


def test_another_session_counts_from_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    counters = iter([(50, 40), (7, 3)])
    monkeypatch.setattr(steps, "_counters", lambda: next(counters))
    found: list[files.Step] = []
    times = steps.StepTimes(found.append)
    times.begin()
    times.end(0.0, 1, 0)
    assert (found[0]["reducing"], found[0]["exposed"]) == (0.0, 0.0)
