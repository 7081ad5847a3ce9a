"""Records what a job does: steps, processes and hosts, as files in one folder (docs/monitor.md).

Importing this package imports the standard library only.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from smddp_tf.monitor import recording
from smddp_tf.monitor.recording import start, stop
from smddp_tf.monitor.steps import StepTimes

__all__ = ["start", "step", "stop"]

_loop = StepTimes(recording.record)
_epoch: int | None = None


@contextlib.contextmanager
def step(samples: int | None = None, epoch: int | None = None) -> Iterator[None]:
    """A context for each step of a custom training loop: records its times. Without a recording it does nothing.

    The time since the last step ended counts as waiting for input, except where another epoch begins. On a GPU, read a
    result inside (`loss.numpy()`): TensorFlow returns before the step has ended.

    Example:
    >>> for batch in tf.data.Dataset.range(4).batch(2):
    ...     with hvd.monitor.step(samples=len(batch)):
    ...         hvd.allreduce(batch)

    Args:
        samples: integer, the number of samples of this rank in the step. Defaults to `None`, unknown.
        epoch: integer, the number of the step's epoch. Defaults to `None`, unknown.

    Yields:
        None.
    """
    global _epoch
    if recording.current() is None:
        yield
        return
    if epoch != _epoch:
        _loop.pause()
    _epoch = epoch
    waited = _loop.begin()
    yield
    _loop.end(waited, samples, epoch)
