"""What `smddp_tf.run.run` cannot send."""

from __future__ import annotations

import threading

import pytest

from smddp_tf.exceptions import LaunchError
from smddp_tf.run.launch.function import payload_of
from smddp_tf.run.rank.task import sendable


def test_what_cannot_be_pickled_is_named() -> None:
    lock = threading.Lock()
    for function, arguments, what in ((lambda: lock, (), "variable 'lock'"), (print, (1, lock), "argument 1")):
        with pytest.raises(LaunchError, match=rf"This cannot be sent to the ranks: {what} \(lock\): TypeError: .*lock"):
            payload_of(function, arguments, {})
    with pytest.raises(LaunchError, match=r"What the function has returned cannot be sent back: .*lock"):
        sendable(lock)
