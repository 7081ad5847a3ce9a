"""A step of two gradients in two buckets, of which the first in the list is computed last."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from tests.native_module import core

PATIENCE_SECONDS = 30.0


class AfterABucket:
    """A function for `tf.numpy_function`: its first call after `begin` lasts until a bucket has been reduced since.

    At most half a minute, where the bucket waits for what this function returns.
    """

    def __init__(self) -> None:
        self._before = -1

    def begin(self) -> None:
        self._before = core().stats()["planned_buckets"]

    def __call__(self, value: np.ndarray) -> np.ndarray:
        give_up_at = time.monotonic() + PATIENCE_SECONDS
        while core().stats()["planned_buckets"] == self._before and time.monotonic() < give_up_at:
            time.sleep(0.002)
        self._before = -1
        return value


def check_early_bucket_is_done_first(
    step: Callable[[], tuple[tf.Tensor, tf.Tensor]], late: np.ndarray, early: np.ndarray
) -> None:
    """Runs the step twice; in the second run the early bucket must be through before the late gradient is ready.

    In the first run the early gradient comes first, so its bucket is number 0 after that.

    Args:
        step: returns the reduced gradients: the late one, which is the first of the list, and the early one.
        late: its expected value.
        early: the same of the early one.
    """
    step()
    core().trace_start()
    reduced_late, reduced_early = step()
    events = core().trace_stop()

    def at(what: str, index: int) -> int:
        [moment] = [event["time_ns"] for event in events if (event["what"], event["index"]) == (what, index)]
        return moment

    np.testing.assert_allclose(reduced_late, late)
    np.testing.assert_allclose(reduced_early, early)
    assert at("tensor_ready", 1) < at("bucket_done", 0) < at("tensor_ready", 0) < at("bucket_done", 1)
