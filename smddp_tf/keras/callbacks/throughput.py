"""Throughput: how fast all ranks train together, and where the time of a step goes. Diagnose records it."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import tensorflow as tf

from smddp_tf.basics import is_initialized, rank, size
from smddp_tf.collectives.rank_facts import numbers_of_ranks
from smddp_tf.keras._backend import keras, needs_keras_3
from smddp_tf.keras.roles import input_waits, wrapping
from smddp_tf.lifecycle import notes
from smddp_tf.monitor import recording
from smddp_tf.monitor.steps import EXPOSED, INPUT, REDUCING, SAMPLES, SECONDS, STEPS, StepTimes

# Shorter steps are noted several at a time: to read what they have waited takes some 50 us.
_TOGETHER_SECONDS = 0.02

# What it adds to the logs.
_TIMES = ("step_seconds", "input_seconds", "computing_seconds", "exposed_seconds")
_NAMES = ("samples_per_second", *_TIMES, "hidden_share", "rank_spread")


class Throughput(keras.callbacks.Callback):
    """Adds the samples per second of all ranks, and where the time of a step goes, to the logs.

    `fit` adds one itself where a recording runs (`smddprun --monitor DIR`). Put it first: the callbacks behind it
    (`TensorBoard`, `CSVLogger`), `History` and the progress bar see its values, which are

    - `samples_per_second`, of all ranks together;
    - `step_seconds`, and of these `input_seconds` (waiting for a batch), `exposed_seconds` (communication that no
      computation hides, and waiting for late ranks) and `computing_seconds`, the rest; means over steps and ranks;
    - `hidden_share`: of the time during which gradients were under way, the part that computation hides;
    - `rank_spread`: the slowest rank's own time for a step (without what is exposed) less the fastest's, as a share of
      `step_seconds`.

    At the end of an epoch all ranks have the same values. After each batch they are this rank's since the epoch began,
    its samples times the number of ranks, without `rank_spread`. Where the model's optimizer does not reduce over all
    ranks, all values are this rank's. A `TensorBoard` then writes on rank 0 only, with these values under one heading
    (`throughput/samples_per_second`, `throughput/batch_samples_per_second`); steps appear in TensorFlow's profiler.

    Example:

    >>> model.fit(x, y, callbacks=[hvd.callbacks.Throughput(), keras.callbacks.CSVLogger("log.csv")])
    """

    for_all_ranks = True
    async_safe = True

    def __init__(self) -> None:
        super().__init__()
        needs_keras_3(type(self).__name__)
        self.data: Any = None  # the `EpochData` of the `fit` that it measures, which sets it
        self.tensorboards: list[Any] = []  # of that `fit`, on this rank
        self._times = StepTimes(recording.record)
        self._together = self._asked_clocks = False
        self._epoch = self._steps_begun = 0
        self._before: input_waits.Counted | None = None  # the current steps; None where there are none
        self._marks: list[float] = []  # where all but the last of these ended
        self._running: dict[str, float] = {}  # for the logs of batches
        self._trace = contextlib.ExitStack()  # of the current step, for TensorFlow's profiler

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        self._together = is_initialized() and size() > 1 and wrapping.model_reduces(self.model)
        self._before, self._asked_clocks = None, False
        self._pause()  # an earlier `fit` may have ended with an error
        if self.data is not None:
            self.data.time_steps()
        for board in self.tensorboards:
            # What Keras's `TensorBoard.summary` returns.
            board._summary_module = SimpleNamespace(**{**vars(tf.summary), "scalar": _headed})

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._epoch = epoch
        self._times.sums = [0.0] * 6
        self._running = {}

    def on_train_batch_begin(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        if self.data is None:  # another one measures this `fit`
            return
        self._trace.close()
        if self._before is None or self._times.begin() >= _TOGETHER_SECONDS:
            self._before = self._end_steps()
            self._times.begin()
        else:
            self._marks.append(time.perf_counter())
        self._trace.enter_context(tf.profiler.experimental.Trace("train", step_num=self._steps_begun, _r=1))
        self._steps_begun += 1

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        if logs is not None:
            logs.update(self._running)

    def on_test_begin(self, logs: dict[str, Any] | None = None) -> None:
        self._pause()

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._pause()
        of_ranks = self._gathered(self._times.sums)
        if self._together and not self._asked_clocks:  # the exchange before has brought the ranks together
            self._asked_clocks = True
            clocks = self._gathered([time.time()])[:, 0]
            if (current := recording.current()) is not None:
                current.facts["clock"] = float(clocks[rank()] - clocks[0])
        values = _shown(of_ranks.sum(axis=0).tolist(), len(of_ranks))
        if values and is_initialized() and len(of_ranks) == size():
            rate = np.format_float_positional(values["samples_per_second"], 4, fractional=False, trim="-")
            notes.tell(notes.SPEED + f"; {rate} samples/s in the last epoch".encode(), os.environ)
        if logs is not None:
            logs.update({**values, **(_spread(of_ranks) if self._together else {})})

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        self.data, self.tensorboards = None, []

    def _end_steps(self) -> input_waits.Counted:
        """Records the current steps, if there are any. A call by Keras that found no more data was no step."""
        counted, before, self._before = input_waits.counted(), self._before, None
        marks, self._marks = self._marks, []
        if before is not None:
            waited, batches, samples = (now - then for now, then in zip(counted, before))
            if batches:
                self._times.end(waited, int(samples), self._epoch, int(batches), marks, self.model.steps_per_execution)
                self._running = _shown(self._times.sums, size() if self._together else 1)
        return counted

    def _pause(self) -> None:
        self._trace.close()
        self._end_steps()
        self._times.pause()

    def _gathered(self, mine: Sequence[float]) -> Any:
        """A row of each rank."""
        return numbers_of_ranks(mine, "Throughput") if self._together else np.array([mine])


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


def _headed(name: str, *value: Any, **step: Any) -> Any:
    """`tf.summary.scalar` for a `TensorBoard`, which shows the values of `Throughput` under one heading."""
    if (of_throughput := name.removeprefix("epoch_")).removeprefix("batch_") in _NAMES:
        name = f"throughput/{of_throughput}"
    return tf.summary.scalar(name, *value, **step)


def _shown(total: Sequence[float], ranks: int) -> dict[str, float]:
    """Computes the values for the logs, from the sums of `StepTimes` over the ranks, or those of one of equal ranks."""
    steps = total[STEPS]
    if not steps:
        return {}
    hidden = {"hidden_share": 1 - total[EXPOSED] / total[REDUCING]} if total[REDUCING] else {}
    times = (total[SECONDS], total[INPUT], total[SECONDS] - total[INPUT] - total[EXPOSED], total[EXPOSED])
    rate = {"samples_per_second": total[SAMPLES] * ranks / total[SECONDS]}
    return {**rate, **{name: seconds / steps for name, seconds in zip(_TIMES, times)}, **hidden}


def _spread(of_ranks: np.ndarray) -> dict[str, float]:
    steps, seconds = np.maximum(of_ranks[:, STEPS], 1), of_ranks[:, SECONDS]
    own = (seconds - of_ranks[:, EXPOSED]) / steps
    return {"rank_spread": float((own.max() - own.min()) / max(float((seconds / steps).mean()), 1e-9))}
