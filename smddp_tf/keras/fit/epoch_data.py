"""The data of Keras's iterators, and epochs over them that are as long on all ranks.

`EpochData` alone writes what is private there, above all `_distributed_dataset`.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from smddp_tf.basics import is_initialized, rank, size
from smddp_tf.collectives.rank_facts import objects_of_ranks
from smddp_tf.data.epochs import EpochsOfFit
from smddp_tf.data.tf_datasets import known_length, without_autotune
from smddp_tf.keras._backend import keras
from smddp_tf.keras.callbacks.uneven_batches import ERROR
from smddp_tf.keras.data_parallel.global_batches import Part
from smddp_tf.keras.fit.uneven import StepsPlan, Supply, listed, uneven_message
from smddp_tf.keras.roles import active_ranks, input_waits, step_hooks

_ATTRIBUTE = "smddp_data"  # of Keras's iterators; Keras keeps that of the validation in `fit`, and reads it again


def data_of(iterator: object) -> EpochData | None:
    """The data of one of Keras's iterators; None where there is no iterator."""
    return getattr(iterator, _ATTRIBUTE, None)


class EpochData:
    """The data of one of Keras's iterators.

    Attributes:
        part: this rank's part of global batches; None without a `keras.distribution`.
        digests: what compares the ranks' batches, where these must be the same.
        batch_spec: the `tf.TensorSpec` of a batch's tensors, in their structure; None where the data are not tf.data's.
        steps_per_epoch: what Keras was given as that.
        dataset: what is read, before it is timed.
        epochs: the epoch numbers of data from `hvd.data.shard`.
        uneven: runs the epochs of a `fit` whose ranks may differ; None where they cannot, or not yet.
    """

    def __init__(self, iterator: Any, part: Part | None, source: object, has_rows: bool) -> None:
        """Prepares the data for steps that are as many as this rank has batches.

        Args:
            iterator: Keras's, which has made its dataset.
            part: of that dataset.
            source: the data of the user's that it was made of; None where their epochs have no numbers.
            has_rows: whether the steps take the pairs of `part`, as those of `evaluate` do.
        """
        # Not kept alive: an iterator must end with `fit`, not when cycles are collected.
        self._iterator: Callable[[], Any] = weakref.ref(iterator)
        self._own = iterator._distributed_dataset
        self.batch_spec = getattr(self._own, "element_spec", None)
        self._has_rows = has_rows
        self._is_timed = False
        self._padding: Any = None
        self.part = part
        self.digests = None if part is None else part.digests
        self.steps_per_epoch: int | None = iterator.steps_per_epoch
        self.epochs = EpochsOfFit(source)
        self.uneven: UnevenEpochs | None = None
        setattr(iterator, _ATTRIBUTE, self)
        self.prepare()

    def prepare(self, supply: Supply | None = None, steps: StepsPlan | None = None) -> None:
        """Makes the dataset in this order: the rank's part, without autotune, as long as agreed, padded, timed.

        Args:
            supply: this rank's, which the others have.
            steps: what all ranks have agreed on; None: every rank makes the steps that it has data for.
        """
        dataset, by_rows = self._own, steps is not None and steps.by_rows
        if self.part is not None:
            dataset = self.part.pairs if self._has_rows or by_rows else self.part.pairs.map(lambda rows, batch: batch)
        if is_initialized() and size() > 1 and isinstance(dataset, tf.data.Dataset):
            dataset = without_autotune(dataset)
        if supply is not None and steps is not None:
            if supply.steps_per_epoch is None and supply.batches not in (None, math.inf):
                dataset = dataset.take(int(supply.batches or 0))
            if steps.watched:
                flags = tf.data.Dataset.from_tensors(1.0).repeat()
                pairs = dataset if by_rows else tf.data.Dataset.zip((flags, dataset))
                self._padding = _padding_iterator(_padding_batches(pairs))
                dataset = pairs.concatenate(_padding_batches(pairs))
            elif supply.steps_per_epoch is None:
                dataset = dataset.take(int(steps.limit))
        self.dataset = dataset
        self._give()

    def time_steps(self) -> None:
        """Measures how long steps wait for their batches, from the next pass over the data on."""
        self._is_timed = True
        self._give()

    def _give(self) -> None:
        """Lets Keras's iterator read the dataset."""
        self._iterator()._distributed_dataset = input_waits.Timed(self.dataset) if self._is_timed else self.dataset

    @property
    def padding(self) -> Any:
        """Endless iterator over pairs (0.0, batch of zeros) like those of the dataset, of the same kind as Keras's."""
        if self._is_timed:  # the train function takes one kind of iterator
            self._padding = input_waits.timed(self._padding)
        return self._padding

    def supply(self, steps_per_execution: int) -> Supply:
        """Returns the facts of this rank's data."""
        part = self.part
        batches = self._iterator().data_adapter.num_batches if part is None or part.steps is None else part.steps
        if batches is None and isinstance(self.dataset, tf.data.Dataset) and known_length(self.dataset) == -1:
            batches = math.inf
        # Older versions of Keras unroll the steps of a call, and the end of the data cancels those before it as well.
        breaks_off = steps_per_execution > 1 and not hasattr(type(self._iterator()), "__next__")
        rows = None if part is None else part.rows
        return Supply(batches, self.steps_per_epoch or None, steps_per_execution, breaks_off, rows)

    def begin_epoch(self, epoch: int) -> None:
        """Called before the data of an epoch are read: sets their order, the same on all ranks, and their length."""
        self.epochs.begin_epoch()
        if self.part is not None and self.part.epoch is not None:
            self.part.epoch.assign(epoch)
        if self.uneven is not None:
            self.uneven.begin_epoch()

    def end_fit(self) -> None:
        """Called after the last epoch.

        Iterators, of which that of padding is one, must end with `fit` and not when cycles are collected: the longer
        they live, the longer TensorFlow takes to end the threads that tune them.
        """
        self.epochs.end_fit()
        self.uneven = self._padding = None

    def set_length(self, steps: float, continues: bool) -> None:
        """Before an epoch whose length the ranks have agreed on.

        Args:
            steps: of the epoch, or `math.inf`.
            continues: whether the data go on where the last epoch has left them.
        """
        if not continues:
            self._iterator()._current_iterator = None
        self._iterator()._num_batches = None
        self._iterator().steps_per_epoch = 2**62 if steps == math.inf else int(steps)


class UnevenEpochs:
    """Runs the epochs of one `fit` after a `StepsPlan`.

    Attributes:
        function: Keras's train function, traced with the hooks of uneven steps.
        watched: whether it must be called instead of that.
        end_step: what is called after each of its calls.
    """

    def __init__(self, model: keras.Model, data: EpochData, supply: Supply, steps: StepsPlan, mode: str) -> None:
        self._model, self._data, self._hooks = model, data, step_hooks.hooks_of(model, "train")
        self._supply, self._plan, self._mode = supply, steps, mode
        self._over, self._calls = False, 0
        self._active_steps_of_iterator = 0.0
        self.function: Any = None
        self.end_step: Callable[[], None] = lambda: None
        self.watched = steps.watched
        data.prepare(supply, steps)

    def begin_epoch(self) -> None:
        """Gives Keras's iterator the agreed length, and data of this rank's own from where they should go on."""
        continues = self._continues()
        if not continues:
            self._active_steps_of_iterator = 0.0
        self._data.set_length(self._plan.limit, continues)
        self._over = False
        self._calls = 0
        if self._plan.watched:
            active_ranks.process_wide().needed.assign(float(self._plan.needed))
            active_ranks.process_wide().by_rows.assign(self._plan.by_rows)
            self._hooks.active_steps.assign(0.0)
            self._hooks.valid.assign(0.0)

    def _continues(self) -> bool:
        """With `steps_per_epoch` the data go on in the next epoch, unless they ran out."""
        if self._supply.steps_per_epoch is None:
            return False
        if not self._plan.watched:
            return True
        expected = min(self._calls * self._supply.steps_per_execution, self._supply.limit())
        active_steps = float(self._hooks.active_steps)
        self._active_steps_of_iterator += active_steps
        used_up = self._supply.batches and self._active_steps_of_iterator >= self._supply.batches
        return active_steps == expected and not used_up

    def __call__(self, iterator: Any) -> Any:
        """Runs the train function on a batch of this rank, or on zeros; says when the epoch is over for all ranks."""
        if self._over:
            raise _end_of_data()
        if self._calls * self._supply.steps_per_execution >= self._supply.limit():
            iterator = self._data.padding if self._supply.steps_per_epoch else iterator
        valid_before = float(self._hooks.valid) if not self._plan.exact else 0.0
        logs = self.function(iterator)
        self._calls += 1
        if self._hooks.incomplete:
            if float(self._hooks.active_steps) == 0.0:
                self._model.reset_metrics()
            self._hooks.trace_again(self._model)
        if self._calls == 1:
            self._check_step_reduces()
        if not self._plan.exact:
            self._look_for_end(valid_before)
        self.end_step()
        return logs

    def _look_for_end(self, valid_before: float) -> None:
        count = float(active_ranks.process_wide().count)
        if self._mode == ERROR and 0 < count < size():
            skipped = int(active_ranks.process_wide().flag.numpy() > 0.5)  # this step, where this rank had data
            counts = objects_of_ranks(int(self._hooks.active_steps) + skipped, "model.fit (batches by rank)")
            raise ValueError(uneven_message(listed([f"{steps} batches" for steps in counts])))
        if count >= self._plan.needed:
            return
        self._over = True
        valid = float(self._hooks.valid) - valid_before
        input_waits.take_back(self._supply.steps_per_execution - valid)
        if valid == 0:
            raise _end_of_data()

    def _check_step_reduces(self) -> None:
        if float(active_ranks.process_wide().count) >= 0.0:
            return
        raise RuntimeError(
            "The training step of this model reduces nothing that tells which ranks have data left, but ranks may have "
            f"different numbers of batches. Received: {self._supply} on rank {rank()}. In `train_step` call `apply` or "
            "`apply_gradients` of an optimizer wrapped by hvd.DistributedOptimizer, outside of a tf.function that ran "
            'before; or give all ranks equally many batches and use UnevenBatchesCallback(mode="off").'
        )


def _end_of_data() -> Any:
    return tf.errors.OutOfRangeError(None, None, "the data of all ranks that count are used up")


def _padding_batches(pairs: tf.data.Dataset) -> Any:
    """Returns the endless dataset of pairs (0.0, batch of zeros) with the element types of `pairs`.

    Dimensions that the types leave open, such as a batch size, are 1.
    """
    _, spec = pairs.element_spec
    return tf.data.Dataset.from_tensors(0.0).repeat().map(lambda flag: (flag, zeros_of(spec)))


def _padding_iterator(padding: tf.data.Dataset) -> Any:
    """Returns an iterator with no thread that tunes it: the end of such a thread can take TensorFlow seconds."""
    options = tf.data.Options()
    options.autotune.enabled = False
    return iter(padding.with_options(options))


def zeros_of(spec: object) -> Any:
    """A batch of zeros (or empty strings) of the given types: any structure that tf.data knows."""
    return tf.nest.map_structure(_zeros_of_leaf, spec)


def _zeros_of_leaf(spec: tf.TypeSpec) -> Any:
    if isinstance(spec, tf.RaggedTensorSpec):
        dense = tf.zeros(_closed(spec.shape), spec.dtype)
        return tf.RaggedTensor.from_tensor(dense, ragged_rank=spec.ragged_rank, row_splits_dtype=spec.row_splits_dtype)
    if isinstance(spec, tf.SparseTensorSpec):
        return tf.sparse.from_dense(tf.zeros(_closed(spec.shape), spec.dtype))
    if isinstance(spec, tf.OptionalSpec):
        return tf.experimental.Optional.empty(spec._element_spec)
    if isinstance(spec, tf.TensorSpec):
        return tf.zeros(_closed(spec.shape), spec.dtype)
    return None  # NoneTensorSpec: an absent component


def _closed(shape: tf.TensorShape) -> Any:
    return [1 if size is None else size for size in shape] if shape.rank is not None else [1]
