"""MetricAverageCallback: epoch metrics that mean the same on every rank."""

from __future__ import annotations

from typing import Any

from smddp_tf.basics import size
from smddp_tf.keras import metric_merge
from smddp_tf.keras._backend import keras, needs_keras_3

_NAME = "MetricAverageCallback"


class MetricAverageCallback(keras.callbacks.Callback):
    """Replaces every metric in the logs of an epoch by its mean over all ranks.

    Each rank computes metrics on its own part of the data. Put this callback before those that read metrics
    (`ReduceLROnPlateau`, `EarlyStopping`, `ModelCheckpoint`, `TensorBoard`): they see the mean, and decide the same on
    every rank. `History` and the progress bar come last and see it too. Validation metrics (`val_...`) are included, so
    either all ranks validate or none does.

    The mean is unweighted, as Horovod's: with unequal numbers of samples, one on a rank with few counts more. With
    `weighted=True` each rank's value counts by the samples the rank has seen in the epoch, in training or, for
    `val_...`, in validation. That is exact for values that are means over samples (loss, accuracy); it is not for
    others (AUC, recall): see `MetricSumCallback` for those.

    Example:

    >>> callbacks = [hvd.callbacks.MetricAverageCallback(), keras.callbacks.EarlyStopping("val_loss")]

    Args:
        device: Taken for compatibility with Horovod; has no effect.
        weighted: Boolean, whether samples count instead of ranks. Defaults to `False`.
    """

    for_all_ranks = True

    def __init__(self, device: str = "", *, weighted: bool = False) -> None:
        super().__init__()
        del device
        self.counts_samples = weighted
        if weighted:
            needs_keras_3("MetricAverageCallback(weighted=True)")

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Averages `logs` in place; all numeric entries are sent as one tensor, in the order of their sorted names."""
        if size() == 1:
            return
        values = metric_merge.numeric_entries(logs or {})
        metric_merge.check_same_on_all_ranks(values, _NAME)
        if not values or logs is None:
            return
        samples = {"": 1.0}  # of each rank as many
        if self.counts_samples:
            kinds = {"": "train", metric_merge.VALIDATION: "test"}
            samples = {prefix: metric_merge.samples_of(self.model, kind) for prefix, kind in kinds.items()}
        logs.update(metric_merge.means_by_samples(values, samples, f"{_NAME} (means)"))
