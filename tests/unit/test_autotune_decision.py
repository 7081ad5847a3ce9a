"""What autotune tries and keeps, with made-up times: no clock, no ranks."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from smddp_tf import _loader

_core = _loader.core()

AXES = [4, 2, 2, 3]
DEFAULT = [0, 0, 0, 0]
STEPS = 7

Measure = Callable[[list[int]], list[float]]


def tune(measure: Measure, axes: list[int] = AXES) -> tuple[list[int], list[tuple[str, list[int], bool]]]:
    return _core.autotune(axes, measure)


def spread_around(us: float, spread: float = 0.0, seed: int = 0) -> list[float]:
    return (us + spread * np.random.default_rng(seed).uniform(-1, 1, STEPS)).tolist()


def test_every_value_of_every_axis_is_tried_once() -> None:
    kept, trials = tune(lambda point: [100.0] * STEPS)
    candidates = [point for phase, point, _ in trials if phase == "candidate"]
    one_changed = [[v if a == axis else 0 for a in range(4)] for axis, n in enumerate(AXES) for v in range(1, n)]
    assert candidates == one_changed
    assert [phase for phase, _, _ in trials[:2]] == ["warm-up", "default"]
    assert kept == DEFAULT
    assert len(trials) == 2 + len(one_changed), "nothing is to be confirmed"


def test_the_best_of_each_axis_add_up() -> None:
    kept, trials = tune(lambda p: [1000.0 - 100 * (p[0] == 2) - 60 * p[1] + 50 * p[2] - 80 * (p[3] == 1)] * STEPS)
    assert kept == [2, 1, 0, 1]
    assert [phase for phase, _, _ in trials[-4:]] == ["default again", "best again"] * 2
    assert trials[-1] == ("best again", kept, True)


@pytest.mark.parametrize("gain", [0.0, 0.01, 0.029])
def test_a_gain_of_less_than_3_percent_is_none(gain: float) -> None:
    kept, _ = tune(lambda point: [1000.0 * (1 - gain * (point != DEFAULT))] * STEPS)
    assert kept == DEFAULT


def test_noise_keeps_the_default() -> None:
    """Steps differ by up to 20 % either way, whatever the settings."""

    def kept(seed: int) -> list[int]:
        rng = np.random.default_rng(seed)
        return tune(lambda point: (1000 + 200 * rng.uniform(-1, 1, STEPS)).tolist())[0]

    assert sum(kept(seed) != DEFAULT for seed in range(100)) <= 4


@pytest.mark.parametrize("seed", range(10))
def test_a_gain_is_found_in_noise(seed: int) -> None:
    rng = np.random.default_rng(seed)
    kept, _ = tune(lambda p: ((1000 - 250 * (p[0] == 3)) * (1 + 0.08 * rng.uniform(-1, 1, STEPS))).tolist())
    assert kept[0] == 3


def test_a_gain_must_be_larger_than_the_spread() -> None:
    wide = [700.0, 750.0, 800.0, 900.0, 1000.0, 1050.0, 1100.0]  # median 900, half of the steps within 150 of it
    kept, _ = tune(lambda point: [1000.0] * STEPS if point == DEFAULT else wide)
    assert kept == DEFAULT
    kept, _ = tune(lambda point: [1000.0] * STEPS if point == DEFAULT else spread_around(900, 50))
    assert kept != DEFAULT


def test_a_winner_that_loses_the_second_time_is_dropped() -> None:
    """The machine was busy while the default was measured; later it was not."""
    seen = {"default": 0}

    def measure(point: list[int]) -> list[float]:
        seen["default"] += point == DEFAULT
        busy = point == DEFAULT and seen["default"] <= 2  # the warm-up, and the trial that counts
        return [2000.0 if busy else 1000.0] * STEPS

    kept, trials = tune(measure)
    assert any(best and point != DEFAULT for _, point, best in trials)
    assert trials[-1][0] == "best again"
    assert trials[-1][2] is False
    assert kept == DEFAULT


def test_a_winner_must_win_twice() -> None:
    """It is as slow as the default the last time."""
    seen: list[list[int]] = []

    def measure(point: list[int]) -> list[float]:
        seen.append(point)
        return [900.0 if point == [0, 1] and seen.count(point) < 3 else 1000.0] * STEPS

    kept, trials = tune(measure, [1, 2])
    assert [best for phase, _, best in trials if phase == "best again"] == [True, False]
    assert kept == [0, 0]


def test_the_warm_up_does_not_count() -> None:
    calls: list[list[int]] = []

    def measure(point: list[int]) -> list[float]:
        calls.append(point)
        return [1.0 if len(calls) == 1 else 1000.0 - 100 * (point[1] == 1)] * STEPS

    assert tune(measure)[0] == [0, 1, 0, 0]


@pytest.mark.parametrize("axes", [[], [1], [1, 1, 1, 1]])
def test_without_a_choice_nothing_is_measured(axes: list[int]) -> None:
    kept, trials = tune(lambda point: [], axes)
    assert (kept, trials) == ([0] * len(axes), [])


def test_one_slow_step_does_not_decide() -> None:
    kept, _ = tune(lambda p: [*[900.0 if p[2] else 1000.0] * (STEPS - 1), 100_000.0])
    assert kept == [0, 0, 1, 0]
