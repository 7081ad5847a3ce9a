"""Diagnose: records a training from a script, as `smddprun --monitor` does from outside."""

from __future__ import annotations

import os

from smddp_tf.basics import is_initialized, rank
from smddp_tf.keras.callbacks.throughput import Throughput
from smddp_tf.monitor import recording


class Diagnose(Throughput):
    """Records what a training does, in a folder, for `smddprun --diagnose DIR`.

    A `Throughput` that also starts a recording when training begins and stops it when training ends, unless one runs
    already. Give it to `fit` on all ranks, as the first callback.

    Example:

    >>> model.fit(x, y, callbacks=[hvd.callbacks.Diagnose("recording")])

    Args:
        folder: String or path, the same one on all hosts; made if need be. What an earlier job has left in it is
            removed.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        super().__init__()
        self.folder = folder
        self._started = False

    def on_train_begin(self, logs: dict[str, float] | None = None) -> None:
        self._started = is_initialized() and recording.current() is None
        if self._started:
            recording.start(self.folder)
        super().on_train_begin(logs)

    def on_train_end(self, logs: dict[str, float] | None = None) -> None:
        super().on_train_end(logs)
        current = recording.current()
        if self._started and current is not None:
            recording.stop()
            if rank() == 0:
                print(f"What this training did is recorded. To read it: smddprun --diagnose {current.folder}")
