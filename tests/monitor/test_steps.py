"""Where the time of a step goes."""

from __future__ import annotations

import pytest

from smddp_tf.monitor import files, steps


class Clock:
    """Takes the place of the module `time`: only `sleep` lets time pass, whatever else the machine does."""

    def __init__(self) -> None:
        self.now = 1000.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def perf_counter(self) -> float:
        return self.now

    def time(self) -> float:
        return 1.7e9 + self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(steps, "time", clock)
    return clock


def test_the_time_of_a_step(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two steps belongs to the later one, after a pause to none; the engine's counters are differences."""
    counters = iter([(10, 5), (2_000_000_010, 500_000_005), (3_000_000_010, 500_000_005), (7, 3), (8, 3)])
    monkeypatch.setattr(steps, "_counters", lambda: next(counters))
    found: list[files.Step] = []
    times = steps.StepTimes(found.append)
    assert times.begin() == 0.0
    clock.sleep(0.02)
    times.end(0.01, 5, 0)
    clock.sleep(0.03)
    assert times.begin() == pytest.approx(0.03)
    times.end(0.03, 4, 0, steps=3, per_call=4)
    times.pause()
    clock.sleep(0.05)
    assert times.begin() == 0.0
    clock.sleep(0.004)
    times.end(0.0, None, 1)
    assert [step["samples"] for step in found] == [5, 2, 1, 1, None]
    assert [step["epoch"] for step in found] == [0, 0, 0, 0, 1]
    assert [step["seconds"] for step in found] == pytest.approx([0.02, 0.01, 0.01, 0.01, 0.004])
    assert (found[0]["reducing"], found[0]["exposed"]) == (2.0, 0.5)
    assert (3 * found[1]["reducing"], found[1]["exposed"]) == (1.0, 0.0)
    assert times.sums[:2] == [5, 9]
    assert times.sums[2] == pytest.approx(0.054)


def test_steps_that_are_noted_together(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has its own length, and a part of the rest by that."""
    counters = iter([(0, 0), (800_000_000, 400_000_000)])
    monkeypatch.setattr(steps, "_counters", lambda: next(counters))
    found: list[files.Step] = []
    times = steps.StepTimes(found.append)
    times.begin()
    began = clock.now
    clock.sleep(0.08)
    times.end(0.04, 8, 2, steps=3, marks=[began + 0.01, began + 0.07])
    assert [step["seconds"] for step in found] == pytest.approx([0.01, 0.06, 0.01])
    assert [step["time"] for step in found] == pytest.approx(
        [1.7e9 + began + end for end in (0.01, 0.07, 0.08)], abs=1e-6
    )
    for step in found:
        assert step["input"] / step["seconds"] == pytest.approx(0.04 / sum(each["seconds"] for each in found))
        assert step["reducing"] == pytest.approx(2 * step["exposed"])
    assert sum(step["exposed"] for step in found) == pytest.approx(0.4)
    assert [step["samples"] for step in found] == [3, 3, 2]


def test_calls_of_several_steps(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seven steps in calls of three; then six and a call that has found the end of the data."""
    monkeypatch.setattr(steps, "_counters", lambda: (0, 0))
    for count, lengths in (7, [0.01] * 3 + [0.02] * 3 + [0.03]), (6, [0.01] * 3 + [0.02] * 3):
        found: list[files.Step] = []
        times = steps.StepTimes(found.append)
        times.begin()
        began = clock.now
        clock.sleep(0.12)
        times.end(0.06, count, 0, steps=count, marks=[began + 0.03, began + 0.09], per_call=3)
        assert [step["seconds"] for step in found] == pytest.approx(lengths)
        assert times.sums[:2] == [count, count]


def test_another_session_counts_from_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    counters = iter([(50, 40), (7, 3)])
    monkeypatch.setattr(steps, "_counters", lambda: next(counters))
    found: list[files.Step] = []
    times = steps.StepTimes(found.append)
    times.begin()
    times.end(0.0, 1, 0)
    assert (found[0]["reducing"], found[0]["exposed"]) == (0.0, 0.0)
