"""MetricAverageCallback and MetricSumCallback: epoch metrics that mean the same on every rank."""

from __future__ import annotations

from typing import Any

import numpy as np

from smddp_tf.basics import size
from smddp_tf.collectives.rank_facts import warn_on_rank_zero
from smddp_tf.keras import metric_merge
from smddp_tf.keras._backend import keras, needs_keras_3
from smddp_tf.keras.metric_merge import VALIDATION, Seen, exact_metrics, states_of

_AVERAGE, _SUM = "MetricAverageCallback", "MetricSumCallback"


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
        self.counts_samples = weighted
        if weighted:
            needs_keras_3("MetricAverageCallback(weighted=True)")

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Averages `logs` in place; all numeric entries are sent as one tensor, in the order of their sorted names."""
        if size() == 1:
            return
        logs = {} if logs is None else logs
        values = metric_merge.numeric_entries(logs)
        metric_merge.check_same_on_all_ranks(values, _AVERAGE)
        samples = {"": 1.0}  # of each rank as many
        if self.counts_samples:
            kinds = {"": "train", VALIDATION: "test"}
            samples = {prefix: metric_merge.samples_of(self.model, kind) for prefix, kind in kinds.items()}
        logs.update(metric_merge.means_by_samples(values, samples, f"{_AVERAGE} (means)"))


class MetricSumCallback(keras.callbacks.Callback):
    """Replaces every metric in the logs of an epoch by that of one process on the data of all ranks.

    The states of the metrics are summed over the ranks, and the results are computed from the sums. So they are exact
    for every metric of Keras, also for those that no averaging of results can give (AUC, precision, recall, mean IoU),
    and with different numbers of samples on the ranks. Validation metrics (`val_...`) are included, so either all ranks
    validate or none does. The logs of single batches are not changed. What gives a metric one number for each batch,
    such as the losses of single outputs, counts as often as the batch has rows.

    A metric that is derived from `keras.metrics.Metric` itself may have states that are not sums. Its entry becomes the
    mean weighted by samples, and rank 0 says so once, unless the metric has the attribute `additive_state = True`, or a
    method `merge_state(metrics)` that takes over the states of other metrics of its class. Entries that belong to no
    metric become such means too.

    Use it in place of `MetricAverageCallback`, before callbacks that read metrics (`ReduceLROnPlateau`,
    `EarlyStopping`, `ModelCheckpoint`, `TensorBoard`), and before callbacks that evaluate the model.

    Example:

    >>> callbacks = [hvd.callbacks.MetricSumCallback(), keras.callbacks.EarlyStopping("val_auc", mode="max")]
    """

    for_all_ranks = True
    counts_samples = True

    def __init__(self) -> None:
        super().__init__()
        needs_keras_3(_SUM)
        self._parts: dict[str, Seen] | None = None  # of the current epoch, by the prefix of their entries
        self._has_warned = False

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Forgets what was seen in the last epoch."""
        self._parts = {}

    def on_test_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Keeps the states of training, which the validation in `fit` is about to clear."""
        self._keep("")

    def on_test_end(self, logs: dict[str, Any] | None = None) -> None:
        """Keeps the states of validation."""
        self._keep(VALIDATION)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Changes `logs` in place; entries, states of training and states of validation are sent as one tensor each.

        Raises:
            ValueError: ranks have different metrics, or some have validated and others have not.
        """
        if size() == 1 or logs is None or self._parts is None:
            return
        self._keep("")
        parts, self._parts = self._parts, None
        entries = metric_merge.numeric_entries(logs)
        metric_merge.check_same_on_all_ranks({**entries, **self._names_of_states(parts)}, _SUM)
        logs.update(metric_merge.merged(self.model, entries, parts, _SUM))

    def _keep(self, prefix: str) -> None:
        if self._parts is None or prefix in self._parts:  # an evaluation outside `fit`, or a second one
            return
        samples = metric_merge.samples_of(self.model, "test" if prefix else "train")
        self._parts[prefix] = Seen(samples, states_of(self._exact()))

    def _exact(self) -> list[Any]:
        exact = exact_metrics(self.model)
        others = [metric.name for metric in metric_merge.leaves(self.model.metrics) if metric not in exact]
        if others and not self._has_warned:
            self._has_warned = True
            warn_on_rank_zero(
                f"{_SUM}: the states of the metrics {others} may not be sums over samples, so means of their results "
                "are shown, weighted by samples. If they are sums, set `additive_state = True` in the metric's class."
            )
        return exact

    def _names_of_states(self, parts: dict[str, Seen]) -> dict[str, np.ndarray]:
        names = [f"state {i} of {metric.name}" for metric in self._exact() for i in range(len(metric.variables))]
        return {f"{prefix}{name}": state for prefix, part in parts.items() for name, state in zip(names, part.states)}
