"""BestModelCheckpoint: the best model so far, written by one rank."""

from __future__ import annotations

import os
from typing import Any

from smddp_tf import urls
from smddp_tf.keras._backend import keras
from smddp_tf.keras.saving.atomic_files import is_for_fsspec, saving_atomically, saving_to_url
from smddp_tf.keras.saving.sharded_variables import together

_EXTENSIONS = (".keras", ".h5")


class BestModelCheckpoint(keras.callbacks.ModelCheckpoint):
    """Saves the model when the monitored metric is better than ever before; only rank 0 writes.

    `keras.callbacks.ModelCheckpoint` with `save_best_only=True`, safe to give to `fit` on every rank. Put
    `MetricAverageCallback` before it: rank 0 then judges by the mean over all ranks and not by its own part of the
    data. Saving needs the other ranks only for tables that are partitioned, and the file loads in plain Keras.

    A file is replaced when the new one is whole and on the disk, so there must be room for both; when it cannot be
    saved, the old one stays. A symbolic link in its place is replaced, not followed.

    Example:

    >>> callbacks = [
    ...     hvd.callbacks.MetricAverageCallback(),
    ...     hvd.callbacks.BestModelCheckpoint(monitor="val_accuracy", filepath="best.keras"),
    ... ]

    Args:
        monitor: Name of the metric. Defaults to `"val_loss"`.
        verbose: `1` makes rank 0 say when it saves. Defaults to `0`.
        save_weights_only: Boolean. Defaults to `False`, the whole model.
        mode: `"auto"`, `"min"` or `"max"`. Defaults to `"auto"`.
        save_freq: `"epoch"` or a number of batches. Defaults to `"epoch"`.
        filepath: String or path ending in `.keras` (`.weights.h5` with `save_weights_only`), or such a URL that
            TensorFlow or `fsspec` knows ("s3://bucket/best.keras"); may hold `{epoch}` and names of metrics. Horovod's
            callback, whose order of arguments is kept, has it set later: so does `callback.filepath = ...` here, before
            `fit`. Defaults to `None`.

    Raises:
        ImportError: If a URL needs a package that is not installed.
        ValueError: If `filepath` has the wrong ending or an unknown protocol, or is still missing in `fit`.
        OSError: On rank 0, if the model could not be saved; the other ranks get the error when the job ends.
    """

    def __init__(
        self,
        monitor: str = "val_loss",
        verbose: int = 0,
        save_weights_only: bool = False,
        mode: str = "auto",
        save_freq: str | int = "epoch",
        filepath: str | os.PathLike[str] | None = None,
    ) -> None:
        if str(monitor).endswith(_EXTENSIONS):
            raise ValueError(
                f"`monitor` must be the name of a metric. Received: monitor={monitor!r}, which looks like a file. "
                f"Pass it by name: BestModelCheckpoint(filepath={monitor!r})."
            )
        self._filepath: str | None = None
        self._weights_only = save_weights_only
        unset = "unset.weights.h5" if save_weights_only else "unset.keras"
        best = {"save_best_only": True, "save_weights_only": save_weights_only}
        super().__init__(unset, monitor, verbose, mode=mode, save_freq=save_freq, **best)
        self.filepath = filepath

    @property
    def filepath(self) -> Any:
        """Where the model goes; `None` until it is set."""
        return self._filepath

    @filepath.setter
    def filepath(self, value: str | os.PathLike[str] | None) -> None:
        if value is not None:
            value = str(value)
            # On every rank, although one saves: a bad name must not stop rank 0 alone while the others wait for it.
            endings = (".weights.h5",) if self._weights_only else _EXTENSIONS
            if not value.endswith(endings):
                raise ValueError(
                    f"`filepath` must end in {' or '.join(endings)} with save_weights_only={self._weights_only}. "
                    f"Received: filepath={value!r}."
                )
            if is_for_fsspec(value):
                urls.file_system(value)
        self._filepath = value

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        if self.filepath is None:
            raise ValueError(
                "BestModelCheckpoint needs a file to save to. Received: filepath=None. "
                "Pass `filepath=` or set `callback.filepath` before `fit`."
            )
        super().on_train_begin(logs)

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        if self.save_freq != "epoch":
            self._on_rank_zero(super().on_train_batch_end, batch, logs)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._on_rank_zero(super().on_epoch_end, epoch, logs)

    def _on_rank_zero(self, hook: Any, number: int, logs: dict[str, Any] | None) -> None:
        def save() -> None:
            with saving_atomically(self, self.model), saving_to_url(self):
                hook(number, logs)

        together(self.model, save)
