"""Records what a job does: steps, processes and hosts, as files in one folder (docs/monitor.md).

Importing this package imports the standard library only.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from smddp_tf.monitor import recording
from smddp_tf.monitor.steps import StepTimes

__all__ = ["start", "step", "stop"]

_loop = StepTimes(recording.record)
_epoch: int | None = None


def start(folder: str | os.PathLike[str]) -> None:
    """Begins to record this rank's steps and the use of its process and host; all ranks call it.

    `smddprun --monitor DIR` does so when `hvd.init()` is called. What an earlier job has left in the folder is removed.
    A rank that cannot write there warns, and the job goes on. `fit` notes its steps, custom loops use `step`.

    Example:
    >>> hvd.monitor.start("/tmp/recording")
    >>> hvd.monitor.stop()

    Args:
        folder: string or path, the same one on all hosts, of this job alone. Made if need be.

    Raises:
        ValueError: before `init`, or a recording runs in another folder.
    """
    recording.start(folder)


def stop() -> None:
    """Ends the recording; does nothing where none runs. `hvd.shutdown()` and the end of the program call it."""
    recording.stop()


@contextlib.contextmanager
def step(samples: int | None = None, epoch: int | None = None) -> Iterator[None]:
    """Around each step of a custom training loop: notes where its time goes. Without a recording it does nothing.

    The time since the last step ended counts as waiting for input, except where another epoch begins. On a GPU, read a
    result inside (`loss.numpy()`): TensorFlow returns before the step has ended.

    Example:
    >>> for batch in tf.data.Dataset.range(4).batch(2):
    ...     with hvd.monitor.step(samples=len(batch)):
    ...         hvd.allreduce(batch)

    Args:
        samples: integer, of this rank in the step. Defaults to `None`, unknown.
        epoch: integer, of the step. Defaults to `None`, unknown.
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
