"""Throughput: how fast all ranks train together, and where the time of a step goes."""

from __future__ import annotations

from typing import Any

from smddp_tf.keras._backend import keras, needs_keras_3
from smddp_tf.keras.fit import input_waits
from smddp_tf.monitor import recording
from smddp_tf.monitor.steps import StepTimes


class Throughput(keras.callbacks.Callback):
    """Adds the samples per second of all ranks, and where the time of a step goes, to the logs.

    `fit` adds one itself where a recording runs (`smddprun --monitor DIR`). Put it first: the callbacks behind it
    (`TensorBoard`, `CSVLogger`), `History` and the progress bar see its values, which are

    - `samples_per_second`, of all ranks together;
    - `step_seconds`, and of these `input_seconds` (waiting for a batch), `exposed_seconds` (communication that no
      computation hides, and waiting for late ranks) and `computing_seconds`, the rest; means over steps and ranks;
    - `hidden_share`: of the time during which gradients were under way, the part that computation hides;
    - `rank_spread`: the slowest rank's time for a step less the fastest's, without what is exposed, in `step_seconds`.

    At the end of an epoch all ranks have the same values, from one exchange. After each batch the values are this
    rank's since the epoch began, its samples times the number of ranks, without `rank_spread`. Where the model's
    optimizer does not reduce over all ranks, the ranks do not ask each other: all values are this rank's.

    A `TensorBoard` then writes on rank 0 only, with the hyperparameters of the job; steps appear in TensorFlow's
    profiler.

    Example:

    >>> model.fit(x, y, callbacks=[hvd.callbacks.Throughput(), keras.callbacks.CSVLogger("log.csv")])
    """

    for_all_ranks = True
    async_safe = True

    def __init__(self) -> None:
        super().__init__()
        needs_keras_3(type(self).__name__)
        self.epoch_iterator: Any = None  # of the `fit` that it measures, which sets it
        self._tensorboards: list[Any] = []
        self._times = StepTimes(recording.record)
        self._together = self._clock_is_known = False
        self._before: input_waits.Counted | None = None  # the step under way began
        self._trace: Any = None

    def adopt_tensorboards(self, arguments: dict[str, Any]) -> None:
        """Of those in the arguments of a `fit`, all but rank 0's do nothing: they would write the same."""
        callbacks = arguments["callbacks"]
        self._tensorboards = [each for each in callbacks if isinstance(each, keras.callbacks.TensorBoard)]
