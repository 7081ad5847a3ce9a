"""A step of two gradients in two buckets, of which the first in the list is computed last."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tensorflow as tf

from tests.native_module import core


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
