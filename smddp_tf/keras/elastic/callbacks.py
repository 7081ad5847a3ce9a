"""Callbacks that keep a state up to date while `Model.fit` runs inside `elastic.run`.

Give them to `fit` on every rank, in the same order. Horovod's documents show the order commit, batch, epoch; the commit
at the end of a batch then knows the batch before. With the commit last, it knows the batch itself.
"""

from __future__ import annotations

from typing import Any

from smddp_tf.elastic.state import State
from smddp_tf.keras._backend import keras


class CommitStateCallback(keras.callbacks.Callback):
    """Calls `state.commit()` after every so many batches, and at the end of each epoch.

    Args:
        state: the state to commit.
        batches_per_commit: integer, counted from the beginning of `fit`, over the ends of epochs. Defaults to 1.
    """

    for_all_ranks = True

    def __init__(self, state: State, batches_per_commit: int = 1) -> None:
        super().__init__()
        self.state = state
        self.batches_per_commit = batches_per_commit
        self.batches_remaining = batches_per_commit

    def on_train_begin(self, logs: dict[str, float] | None = None) -> None:
        """Counts from zero: after a reset all ranks must commit at the same batches."""
        self.batches_remaining = self.batches_per_commit

    def on_batch_end(self, batch: int, logs: dict[str, float] | None = None) -> None:
        """Commits when a commit is due."""
        self.batches_remaining -= 1
        if self.batches_remaining == 0:
            self.state.commit()
            self.batches_remaining = self.batches_per_commit

    def on_epoch_end(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        """Commits. The count of batches continues."""
        self.state.commit()


class UpdateBatchStateCallback(keras.callbacks.Callback):
    """Keeps `state.batch` at the number of the last batch that ended, and at 0 between epochs.

    An epoch that begins with `state.batch` above 0 is the rest of one that was interrupted: `params["steps"]` says then
    how many batches are left. Keras itself no longer reads that number (since TensorFlow 2.2); to train on no batch
    twice, pass `steps_per_epoch=steps - state.batch` to `fit`, or begin again at an epoch.

    Args:
        state: the state to update. It must have been made with `batch=`.
    """

    def __init__(self, state: State) -> None:
        super().__init__()
        self.state: Any = state  # whose attributes are the program's
        self.steps_per_epoch: int | None = None

    def on_train_begin(self, logs: dict[str, float] | None = None) -> None:
        """Reads the number of steps again."""
        self.steps_per_epoch = None

    def on_epoch_begin(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        """Sets `params["steps"]` to the batches that are left of this epoch, where their number is known."""
        if self.params.get("steps"):
            if self.steps_per_epoch is None:
                self.steps_per_epoch = self.params["steps"]
            self.params["steps"] = self.steps_per_epoch - self.state.batch

    def on_batch_end(self, batch: int, logs: dict[str, float] | None = None) -> None:
        """Notes the number of the batch, as Keras counts: from 0 in every epoch and every `fit`."""
        self.state.batch = batch

    def on_epoch_end(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        """The next epoch begins at its first batch."""
        self.state.batch = 0


class UpdateEpochStateCallback(keras.callbacks.Callback):
    """Keeps `state.epoch` at the number of epochs that have ended, over all resets.

    It counts from what `state.epoch` was when `fit` began, for scripts that call
    `fit(epochs=epochs - state.epoch)`. With `fit(initial_epoch=state.epoch, epochs=epochs)` Keras itself counts from
    there, and that is understood too.

    Args:
        state: the state to update. It must have been made with `epoch=`.
    """

    def __init__(self, state: Any) -> None:
        super().__init__()
        self.state = state
        self.initial_epoch = state.epoch
        self._first: int | None = None

    def on_train_begin(self, logs: dict[str, float] | None = None) -> None:
        """Records where training continues."""
        self.initial_epoch = self.state.epoch
        self._first = None

    def on_epoch_begin(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        """Notes from where Keras counts."""
        if self._first is None:
            self._first = epoch

    def on_epoch_end(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        """Sets `state.epoch` to the epoch that comes next."""
        resumed_by_keras = self._first == self.initial_epoch
        self.state.epoch = (0 if resumed_by_keras else self.initial_epoch) + epoch + 1
