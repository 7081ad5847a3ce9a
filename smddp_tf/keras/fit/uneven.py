"""Uneven data in `fit`: what the ranks tell each other before training, and how long their epochs are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from smddp_tf._native.threads import of_thread
from smddp_tf.basics import rank, size
from smddp_tf.collectives.functions import allgather_object
from smddp_tf.keras.callbacks.uneven_batches import ERROR, JOIN, OFF, SHORTEST
from smddp_tf.keras.data_parallel.global_batches import part_of
from smddp_tf.keras.roles import active_ranks, input_waits
from smddp_tf.keras.roles.step_hooks import StepHooks


class Supply(NamedTuple):
    """What one rank knows about its data when `fit` begins.

    Attributes:
        batches: the number of batches the data have; None if they do not tell, `math.inf` if they never end.
        steps_per_epoch: as given to `fit`, or None.
        steps_per_execution: as given to `compile`.
        breaks_off: whether this Keras would break off in the middle of a call that takes several steps.
        rows: under a `keras.distribution`, where means are over rows: the rows of each batch, 0 if they differ.
            Without one None.
    """

    batches: float | None
    steps_per_epoch: int | None
    steps_per_execution: int
    breaks_off: bool
    rows: int | None = None

    def limit(self) -> float:
        """The most steps an epoch can have here. With `steps_per_epoch`, Keras takes whole calls."""
        if self.steps_per_epoch is None:
            return math.inf if self.batches is None else self.batches
        return -(-self.steps_per_epoch // self.steps_per_execution) * self.steps_per_execution

    def is_exact(self) -> bool:
        """Do epochs have exactly `limit()` steps?"""
        if self.steps_per_epoch is None:
            return self.batches is not None
        return self.batches == math.inf

    def __str__(self) -> str:
        steps = f"steps_per_epoch={self.steps_per_epoch}, " if self.steps_per_epoch else ""
        batches = {None: "an unknown number of", math.inf: "endless"}.get(self.batches, self.batches)
        return f"{steps}{batches} batches"


def supply_of(epoch_iterator: Any, steps_per_execution: int) -> Supply:
    """Reads a `Supply` from Keras's iterator over the training data."""
    part = part_of(epoch_iterator)
    batches = epoch_iterator.data_adapter.num_batches if part is None or part.steps is None else part.steps
    if batches is None:
        dataset = epoch_iterator._distributed_dataset
        never_ends = getattr(dataset, "cardinality", lambda: None)()
        batches = math.inf if never_ends is not None and int(never_ends) == tf.data.INFINITE_CARDINALITY else None
    steps = epoch_iterator.steps_per_epoch
    # Older versions of Keras unroll the steps of a call, and the end of the data cancels those before it as well.
    breaks_off = steps_per_execution > 1 and not hasattr(type(epoch_iterator), "__next__")
    return Supply(batches, steps or None, steps_per_execution, breaks_off, None if part is None else part.rows)


class Plan(NamedTuple):
    """What all ranks do, worked out by each from everybody's `Supply`.

    Attributes:
        limit: steps after which every rank ends an epoch at the latest, or `math.inf`.
        watched: whether steps must tell which ranks are active: an epoch may end before the limit, or on some ranks
            only.
        exact: whether epochs have exactly `limit` steps, so that nobody needs to look for their end.
        needed: the number of ranks that must be active in a step that counts.
        by_rows: whether means are weighted by the rows of the ranks' batches.
    """

    limit: float
    watched: bool
    exact: bool
    needed: int
    by_rows: bool = False


def plan_for(mode: str, supplies: Sequence[Supply]) -> Plan | None:
    """Returns the `Plan`, or None where nothing needs to be done: all ranks have equally many batches."""
    first = supplies[0]
    if len({supply.steps_per_execution for supply in supplies}) > 1:
        raise ValueError(
            "All ranks must compile the model with the same `steps_per_execution`. Received: "
            f"{[supply.steps_per_execution for supply in supplies]}, by rank."
        )
    by_rows = first.rows is not None and (first.rows == 0 or any(supply.rows != first.rows for supply in supplies))
    needs_nothing = all(supply == first for supply in supplies) and first.batches is not None and not by_rows
    if mode == OFF or (needs_nothing and not _ends_inside_a_call(first)):
        return None
    limits = [supply.limit() for supply in supplies]
    exact = all(supply.is_exact() for supply in supplies)
    if by_rows:
        return Plan(max(limits), True, exact, 1, True)
    if mode == ERROR and exact and len(set(limits)) > 1:
        raise ValueError(uneven_message(_listed(supplies)))
    if mode == JOIN:
        return Plan(max(limits), True, exact, 1)
    if mode == SHORTEST and exact:
        limit = min(limits)
        if first.breaks_off:
            limit -= limit % first.steps_per_execution
        if limit > 0:
            return Plan(limit, False, True, len(supplies))
        raise ValueError(
            'UnevenBatchesCallback(mode="shortest"): no step is left that every rank has data for. '
            f'Received: {"; ".join(_listed(supplies))}. Give every rank data, or use mode="join".'
        )
    return Plan(max(limits) if mode == ERROR else min(limits), True, exact, len(supplies))


def uneven_message(counts: Sequence[str]) -> str:
    return (
        'The ranks have different numbers of batches, which UnevenBatchesCallback(mode="error") refuses. '
        f"Received: {'; '.join(counts)}. Give every rank equally many, for example by `steps_per_epoch`, "
        'or use mode="join" or mode="shortest".'
    )


def _listed(supplies: Sequence[Any]) -> list[str]:
    return [f"rank {i}: {supply}" for i, supply in enumerate(supplies)]


def _ends_inside_a_call(supply: Supply) -> bool:
    if supply.batches is None or supply.batches == math.inf:
        return False
    return supply.breaks_off and supply.batches % supply.steps_per_execution != 0


class UnevenEpochs:
    """Runs the epochs of one `fit` after a `Plan`: changes Keras's iterator, and what its train function gets.

    Attributes:
        function: Keras's train function, traced with the hooks of uneven steps.
    """

    def __init__(
        self, model: Any, epoch_iterator: Any, supply: Supply, plan: Plan, mode: str, hooks: StepHooks
    ) -> None:
        self._model = model
        self._iterator = epoch_iterator
        self._supply = supply
        self._plan = plan
        self._mode = mode
        self._hooks = hooks
        self._over = False
        self._calls = 0
        self._active_steps_of_iterator = 0.0
        self._padding: Any = None
        self.function: Any = None
        self.watched = plan.watched
        self._change_dataset()

    def _change_dataset(self) -> None:
        dataset = self._iterator._distributed_dataset
        part = part_of(self._iterator)
        if self._plan.by_rows and part is not None:
            dataset = part.pairs
        if self._supply.steps_per_epoch is None and self._supply.batches not in (None, math.inf):
            dataset = dataset.take(int(self._supply.batches))
        if self._plan.watched:
            pairs = dataset if self._plan.by_rows else with_flags(dataset)
            self._padding = padding_iterator(padding_batches(pairs))
            dataset = pairs.concatenate(padding_batches(pairs))
        elif self._supply.steps_per_epoch is None:
            dataset = dataset.take(int(self._plan.limit))
        self._iterator._distributed_dataset = dataset

    def begin(self) -> None:
        """Before the first epoch: has the model's variables made, so that steps without data can spare them."""
        if not self._plan.watched:
            return
        batch = next(self._padding)[1]
        try:
            self._model._symbolic_build(data_batch=batch)
        except Exception:  # a model that cannot be built from shapes alone; its first step builds it
            pass

    def begin_epoch(self) -> None:
        """Gives Keras's iterator the agreed length, and data of this rank's own from where they should go on."""
        if not self._continues():
            self._iterator._current_iterator = None
            self._active_steps_of_iterator = 0.0
        self._iterator._num_batches = None
        self._iterator.steps_per_epoch = 2**62 if self._plan.limit == math.inf else int(self._plan.limit)
        self._over = False
        self._calls = 0
        if self._plan.watched:
            if isinstance(self._iterator._distributed_dataset, input_waits.Timed):
                self._padding = input_waits.timed(self._padding)  # the train function takes one kind of iterator
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
        return active_steps == expected and not (
            self._supply.batches and self._active_steps_of_iterator >= self._supply.batches
        )

    def __call__(self, iterator: Any) -> Any:
        """Runs the train function on a batch of this rank, or on zeros; says when the epoch is over for all ranks."""
        if self._over:
            raise self._end_of_data()
        if self._calls * self._supply.steps_per_execution >= self._supply.limit():
            iterator = self._padding if self._supply.steps_per_epoch else iterator
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
        return logs

    def _look_for_end(self, valid_before: float) -> None:
        count = float(active_ranks.process_wide().count)
        if self._mode == ERROR and 0 < count < size():
            name = of_thread("model.fit (batches by rank)")
            skipped = int(active_ranks.process_wide().flag.numpy() > 0.5)  # this step, where this rank had data
            counts = allgather_object(int(self._hooks.active_steps) + skipped, name=name)
            raise ValueError(uneven_message(_listed([f"{steps} batches" for steps in counts])))
        if count >= self._plan.needed:
            return
        self._over = True
        valid = float(self._hooks.valid) - valid_before
        input_waits.take_back(self._supply.steps_per_execution - valid)
        if valid == 0:
            raise self._end_of_data()

    @staticmethod
    def _end_of_data() -> Any:
        return tf.errors.OutOfRangeError(None, None, "the data of all ranks that count are used up")

    def _check_step_reduces(self) -> None:
        if float(active_ranks.process_wide().count) >= 0.0:
            return
        raise RuntimeError(
            "The training step of this model reduces nothing that tells which ranks have data left, but ranks may have "
            f"different numbers of batches. Received: {self._supply} on rank {rank()}. In `train_step` call `apply` or "
            "`apply_gradients` of an optimizer wrapped by hvd.DistributedOptimizer, outside of a tf.function that ran "
            'before; or give all ranks equally many batches and use UnevenBatchesCallback(mode="off").'
        )


def padding_batches(pairs: Any) -> Any:
    """Returns the endless dataset of pairs (0.0, batch of zeros) with the element types of `pairs`.

    Dimensions that the types leave open, such as a batch size, are 1.
    """
    _, spec = pairs.element_spec
    return tf.data.Dataset.from_tensors(0.0).repeat().map(lambda flag: (flag, zeros_of(spec)))


def padding_iterator(padding: Any) -> Any:
    """Returns an iterator with no thread that tunes it: the end of such a thread can take TensorFlow seconds."""
    options = tf.data.Options()
    options.autotune.enabled = False
    return iter(padding.with_options(options))


def with_flags(dataset: Any) -> Any:
    """Returns the pairs (1.0, batch) of `dataset`."""
    return tf.data.Dataset.zip((tf.data.Dataset.from_tensors(1.0).repeat(), dataset))


def zeros_of(spec: Any) -> Any:
    """A batch of zeros (or empty strings) of the given types: any structure that tf.data knows."""
    return tf.nest.map_structure(_zeros_of_leaf, spec)


def _zeros_of_leaf(spec: Any) -> Any:
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


def _closed(shape: Any) -> Any:
    return [1 if size is None else size for size in shape] if shape.rank is not None else [1]
