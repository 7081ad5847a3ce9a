"""Wraps a model's `train_step` and `test_step`, and replaces the functions that Keras traces.

`StepHooks` is the only writer of a model's `train_step`, `test_step`, `train_function` and `test_function`.

Two things need to see every batch: uneven data (is it a real one?) and the counting of samples. Both sit in one
wrapper, set on the instance and taken off again, and traced by Keras together with the model's own step. The traced
functions are kept for the next time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import tensorflow as tf

from smddp_tf.keras.roles import active_ranks, global_means, running
from smddp_tf.keras.roles.global_means import GlobalBatch, OwnBatch

_ATTRIBUTE = "_smddp_step_hooks"
Step = Callable[[Any], Any]  # of data, or of an iterator over them


class StepKind(NamedTuple):
    """The kind of a step's batches; a step that was traced for one kind cannot take another.

    Attributes:
        of_pairs: whether they come as pairs (flag, batch). A train step with flag 0 leaves no trace on this rank; see
            `ActiveRanks` for what the flag is otherwise. For test steps it is the number of rows.
        is_global: whether there is a `keras.distribution`: the ranks' batches together are one batch.
        is_cut: whether those are cut out of a batch that all ranks have read, and not brought by each rank.
    """

    of_pairs: bool = False
    is_global: bool = False
    is_cut: bool = True

    @classmethod
    def under(cls, distribution: object, of_pairs: bool) -> StepKind:
        """The kind under a `keras.distribution`, or None."""
        return cls(of_pairs, distribution is not None, getattr(distribution, "_auto_shard_dataset", True))


def hooks_of(model: tf.keras.Model, kind: str) -> StepHooks:
    """Returns the `StepHooks` of the model's `kind` ("train" or "test") steps, the same object at every call."""
    # Goes past Keras's tracking of attributes: it must get into no saved file.
    hooks: dict[str, StepHooks] = vars(model).setdefault(_ATTRIBUTE, {})
    if kind not in hooks:
        hooks[kind] = StepHooks(kind)
    return hooks[kind]


def trace_again(model: tf.keras.Model) -> None:
    """Makes the functions of all kinds again: those that were traced hold tables, numbers and parts of before."""
    for kind in ("train", "test", "predict"):
        hooks_of(model, kind).forget()
        if getattr(model, f"{kind}_function", None) is not None:
            getattr(model, f"make_{kind}_function")(force=True)


class StepHooks:
    """The counters of wrapped steps, and the functions traced with them.

    Attributes:
        samples: float64 variable, the samples this rank has seen in valid steps since it was last set to zero.
        active_steps: float32 variable, the valid steps of this rank with data of its own, likewise.
        valid: float32 variable, the valid steps, likewise.
        installed: whether the model's steps go through here.
        incomplete: whether tracing a step made new variables: what a step without data does to those cannot be undone
            later on in that trace, so the step must be traced again.
    """

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._step, self._function = f"{kind}_step", f"{kind}_function"
        with tf.init_scope():
            self.samples = tf.Variable(0.0, dtype=tf.float64, trainable=False)
            self.active_steps = tf.Variable(0.0, trainable=False)
            self.valid = tf.Variable(0.0, trainable=False)
        self.installed = False
        self.incomplete = False
        self._plain: Any = None
        self._last_logs: list[tf.Variable] | None = None
        self._kept: dict[StepKind, tuple[Any, Any]] = {}  # the plain function and ours

    def reset(self) -> None:
        for counter in (self.samples, self.active_steps, self.valid):
            counter.assign(0)

    @contextlib.contextmanager
    def installed_in(self, model: tf.keras.Model, of_step: StepKind) -> Iterator[None]:
        """Inside, the wrapped step replaces the model's, and the function traced from it replaces Keras's.

        Where they are installed already, nothing changes.
        """
        if self.installed:
            yield
            return
        plain_step = getattr(model, self._step)
        self._plain = getattr(model, self._function)
        steps_of_pairs = {"train": self._uneven_step, "test": self._test_step}
        make = steps_of_pairs[self._kind] if of_step.of_pairs else self._counting_step
        object.__setattr__(model, self._step, make(model, plain_step, of_step))
        self.installed = True
        global_means.count_rows()
        kept_beside, function = self._kept.get(of_step, (None, None))
        if function is not None and kept_beside is self._plain:
            setattr(model, self._function, function)
        else:
            self.trace_again(model)
        try:
            yield
        finally:
            self.installed = False
            object.__delattr__(model, self._step)
            function = getattr(model, self._function)
            if function is not None:  # else compiled again in the meantime
                if self._plain is not None and not self.incomplete:
                    self._kept[of_step] = (self._plain, function)
                setattr(model, self._function, self._plain)

    def trace_again(self, model: tf.keras.Model) -> None:
        """Makes Keras trace the present step again."""
        self.incomplete = False
        self._last_logs = None
        getattr(model, f"make_{self._function}")(force=True)

    def intercept(self, model: tf.keras.Model, run: Step, function_before: Step | None = None) -> Step | None:
        """Makes Keras call `run(iterator)` instead of the function.

        Returns:
            The function that it stands for; `function_before`, the last one, where no other was made since.
        """
        function: Step | None = getattr(model, self._function)
        if function is run:
            return function_before
        setattr(model, self._function, run)
        return function

    def release(self, model: tf.keras.Model, run: Step, function: Step | None) -> None:
        """Undoes `intercept`, unless the function was made again since."""
        if getattr(model, self._function) is run:
            setattr(model, self._function, function)

    def forget(self) -> None:
        """Lets no function come back that was traced before."""
        self._plain, self._kept = None, {}

    def drop_function(self, model: tf.keras.Model) -> None:
        """Makes Keras trace the step again before it runs the next time."""
        setattr(model, self._function, None)

    def _counting_step(self, model: tf.keras.Model, plain_step: Step, of_step: StepKind) -> Step:
        together = self._kind == "train" and of_step.is_global

        def step(data: object) -> Any:
            rows = rows_of(data)
            self.samples.assign_add(rows)
            with running.within(batch=GlobalBatch(is_cut=of_step.is_cut) if together else OwnBatch(rows)):
                return plain_step(data)

        return step

    def _test_step(self, model: tf.keras.Model, plain_step: Step, of_step: StepKind) -> Step:
        counting_step = self._counting_step(model, plain_step, of_step)

        def step(pair: Any) -> Any:
            if len(pair) != 2 or pair[0].shape.rank != 0:  # what `test_on_batch` was given
                return counting_step(pair)
            rows, data = pair
            before = {id(variable): _copy(variable) for variable in model.metrics_variables}
            # Data that each rank brings itself may be more steps here than elsewhere.
            with running.within(batch=GlobalBatch(rows) if of_step.is_cut else OwnBatch(rows)):
                logs = plain_step(data)
            for variable in model.metrics_variables:
                if id(variable) in before:
                    variable.assign(tf.where(rows > 0.5, tf.convert_to_tensor(variable), before[id(variable)]))
            self.samples.assign_add(tf.cast(rows, tf.float64))
            return logs

        return step

    def _uneven_step(self, model: tf.keras.Model, plain_step: Step, of_step: StepKind) -> Step:
        active = active_ranks.process_wide()

        def step(flagged: tuple[tf.Tensor, Any]) -> Any:
            flag, data = flagged
            active.begin_step(flag)
            batch = GlobalBatch(flag, of_step.is_cut) if of_step.is_global else OwnBatch(rows_of(data))
            before = {id(variable): _copy(variable) for variable in _changed_by_data(model)}
            with running.within(active=active, batch=batch):
                logs = plain_step(data)
            alive = active.is_valid() & (flag > 0.5)
            for variable in _changed_by_data(model):
                if id(variable) in before:
                    stays = active.is_valid() if getattr(variable, "smddp_agreed", False) else alive
                    variable.assign(tf.where(stays, tf.convert_to_tensor(variable), before[id(variable)]))
                else:
                    self.incomplete = True
            self.samples.assign_add(tf.where(alive, rows_of(data), tf.zeros([], tf.float64)))
            self.active_steps.assign_add(tf.cast(alive, tf.float32))
            self.valid.assign_add(tf.cast(active.is_valid(), tf.float32))
            return self._logs_of_last_real_step(logs, alive)

        return step

    def _logs_of_last_real_step(self, logs: object, alive: tf.Tensor) -> Any:
        """Returns the logs for callbacks: in a step without data those of the last step with data."""
        values = [] if logs is None else [tf.convert_to_tensor(value) for value in tf.nest.flatten(logs)]
        if not values or not all(value.shape.is_fully_defined() for value in values):
            return logs
        if self._last_logs is None:
            with tf.init_scope():
                self._last_logs = [tf.Variable(tf.zeros(value.shape, value.dtype), trainable=False) for value in values]
        for last, value in zip(self._last_logs, values):
            last.assign(tf.where(alive, value, last))
        return tf.nest.pack_sequence_as(logs, [tf.identity(last) for last in self._last_logs])


def _changed_by_data(model: tf.keras.Model) -> list[Any]:
    """The variables that a step changes without asking the other ranks: metrics, statistics, random states."""
    chosen = {id(variable): variable for variable in (*model.non_trainable_variables, *model.metrics_variables)}
    return list(chosen.values())


def _copy(variable: tf.Variable | tf.keras.Variable) -> tf.Tensor:
    return tf.identity(tf.convert_to_tensor(variable))


def rows_of(data: object) -> tf.Tensor:
    """The number of samples: the rows of the first array of the inputs, as Keras counts them."""
    inputs = data[0] if isinstance(data, (tuple, list)) and data else data
    for leaf in tf.nest.flatten(inputs):
        if leaf is not None:
            return tf.cast(leaf.nrows() if isinstance(leaf, tf.RaggedTensor) else tf.shape(leaf)[0], tf.float64)
    return tf.constant(0.0, tf.float64)
