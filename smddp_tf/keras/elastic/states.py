"""States of a Keras model with its optimizer."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from smddp_tf import basics
from smddp_tf.collectives.functions import broadcast_variables
from smddp_tf.collectives.layouts import layout_of
from smddp_tf.collectives.objects import broadcast_object
from smddp_tf.collectives.tensor_types import AnyOptimizer, AnyVariable
from smddp_tf.elastic.commits import CommitFolder
from smddp_tf.elastic.variables import VariablesState, check_fit, copies
from smddp_tf.exceptions import HostsUpdatedInterrupt
from smddp_tf.keras._backend import build_optimizer, optimizer_variables
from smddp_tf.keras.elastic.part_copies import Commit, PartCopies, full_values
from smddp_tf.keras.optimizer.reducing import build_for_session
from smddp_tf.keras.roles import optimizers, step_hooks, wrapping
from smddp_tf.keras.saving.sharded_variables import divides, saves_together, shard_of, with_full_values
from smddp_tf.keras.sharding import partitioned_weights
from smddp_tf.rendezvous import rounds

_COMMIT = "hvd.elastic (a commit's parts)"


class TensorFlowKerasState(VariablesState):
    """A state of a Keras model, its optimizer (slots, step counter, learning rate, loss scale) and Python objects.

    Random states that belong to the model (those of `Dropout`) are part of it, so training after a `restore` repeats
    what was undone. Metrics are not.

    Example:

    >>> state = hvd.elastic.TensorFlowKerasState(model, optimizer, batch=0, epoch=0)

    Args:
        model: Keras model. It must be built; its optimizer is built here if it is not.
        optimizer: Keras optimizer. Defaults to the one the model is compiled with, which is part of the state in any
            case.
        backend: accepted for compatibility with Horovod, where it concerns TensorFlow 1; has no effect.
        kwargs: Python objects, which become attributes; see `ObjectState`.

    Raises:
        ValueError: The model is not built, or there is no optimizer.
    """

    def __init__(
        self, model: tf.keras.Model, optimizer: AnyOptimizer | None = None, backend: object = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        if not getattr(model, "built", True):
            raise ValueError(
                "`model` must be built, so that it has variables to save: give it a keras.Input, call "
                f"model.build(input_shape), or let it see a batch. Received: {model!r}, which is not built."
            )
        compiled = getattr(model, "optimizer", None)
        if optimizer is None and compiled is None:
            raise ValueError(
                "A state needs an optimizer: pass one as `optimizer`, or compile the model. "
                f"Received: optimizer=None and {model!r}, which is not compiled."
            )
        self.model = model
        self.optimizer = optimizer if optimizer is not None else compiled
        self.backend = backend
        self._copies = PartCopies()
        self._is_restored = False  # since the last sync
        self._save_model()

    def restore(self) -> None:
        """Gives model, optimizer and attributes the values of the last `save`."""
        for variable, value in self._saved:
            if variable.shape == value.shape:  # or ranks were lost while parts moved, and `sync` moves them again
                variable.assign(value)
        saved = {id(variable): value for variable, value in self._saved_sums}
        for variable in self._sums():
            variable.assign(saved.get(id(variable), tf.zeros_like(variable)))
        super().restore()
        self._is_restored = True

    def sync(self) -> None:
        """Gives all ranks the present variables, and the saved attributes, of rank 0, and saves the variables.

        Of partitioned variables, which may have other ranks now, each rank gets its part.
        """
        if self._moves_parts():
            self._move_parts()
        broadcast_variables(self._variables(), root_rank=0)
        self._save_model()
        super().sync()
        self._is_restored = False
        self._keep_elsewhere()

    def finish_commit(self) -> None:
        """Waits until the last commit is in the folder, and in the memory of other ranks."""
        self._copies.finish()
        super().finish_commit()

    def to_disk(self) -> Any:
        """The saved values and attributes; not what `backward_passes_per_step` has added up.

        Of sharded variables it has the shape; their values follow, one by one.
        """
        values = [
            np.asarray(value) if layout_of(variable) is None else layout_of(variable).full_shape
            for variable, value in self._saved
        ]
        return {"values": values, "attributes": super().to_disk()}

    def from_disk(self, content: dict[str, Any]) -> None:
        """Takes over values and attributes. Raises ValueError when they are of another model."""
        variables = self._variables()
        check_fit(variables, content["values"])
        self._saved = [pair for pair in zip(variables, content["values"]) if _is_taken_over_by_rank_0(*pair)]
        self._lacks_parts = len(self._saved) < len(variables)
        self._saved_sums.clear()
        super().from_disk(content["attributes"])
        self.restore()
        self._is_restored = False  # no session was lost

    def _write_together(self, folder: CommitFolder, wait: bool) -> str:
        if not saves_together(self.model, self._optimizers()):
            return super()._write_together(folder, wait)
        content = self._frozen() if basics.rank() == 0 else None
        parts = [(value, layout_of(variable)) for variable, value in self._saved if layout_of(variable) is not None]

        def write(full: Callable[[int], Any]) -> int:
            return folder.write(content, map(full, range(len(parts))))

        return self._problem_of(folder, lambda: folder.begin(lambda: with_full_values(parts, write, _COMMIT), wait))

    def on_reset(self) -> None:
        """See `State.on_reset`."""
        self._give_up_commit()
        super().on_reset()

    def _give_up_commit(self) -> None:
        """Waits until no parts are written any more: they come from the ranks of one session."""
        if divides(self.model, self._optimizers()):
            with contextlib.suppress(Exception):
                super().finish_commit()

    def _take_parts(self, commit: Iterator[Any]) -> None:
        for variable, value in zip(self._variables(), next(commit)["values"]):
            if not _is_taken_over_by_rank_0(variable, value):
                variable.assign(shard_of(variable, next(commit) if isinstance(value, tuple) else value))
        self._save_model()

    def _check_host_updates(self, problem: str) -> None:
        try:
            super()._check_host_updates(problem)
        except HostsUpdatedInterrupt:
            self._copies.finish()  # before this session ends
            self._give_up_commit()
            raise

    def _keep_elsewhere(self, wait: bool = False) -> None:
        if self._moves_parts():
            self._copies.begin(self._as_commit())
            if wait:
                self._copies.finish()

    def _as_commit(self) -> Commit:
        """What was saved last."""
        layouts = [layout_of(variable) for variable, _ in self._saved]
        return Commit(basics.rank(), layouts, [value for _, value in self._saved], self._saved_state)

    def _moves_parts(self) -> bool:
        """Whether there are, or may be with other ranks, partitioned variables, in a job whose ranks change."""
        return rounds.in_rounds(os.environ) and divides(self.model, self._optimizers())

    def _move_parts(self) -> None:
        """Divides the variables among the ranks of this session, which then have the values of the one before."""
        self._save_model()
        exists, commit = self._copies.agreed(self._as_commit(), self._is_restored)
        if not exists:
            return
        about = None if commit is None else (commit.layouts, commit.attributes)
        layouts, attributes = broadcast_object(about) or ((), {})
        if not layouts:
            raise RuntimeError(
                "A rank was lost before the first commit of partitioned variables was in the memory of other ranks. "
                "The job must begin with a commit on disk: smddprun --elastic starts it again."
            )
        self._saved_state = attributes
        self._build_for_session()
        values = full_values(commit, layouts)
        for index, (variable, layout) in enumerate(zip(self._variables(), layouts)):
            if layout is not None:
                variable.assign(shard_of(variable, next(values)))
            elif layout_of(variable) is not None:
                value = broadcast_object(None if commit is None else np.asarray(commit.values[index]))
                variable.assign(shard_of(variable, value))
            elif commit is not None:
                variable.assign(commit.values[index])

    def _build_for_session(self) -> None:
        """Makes the partitioned variables again, and has Keras trace its functions again."""
        for layer in self.model._flatten_layers():
            if hasattr(layer, "build_for_session"):
                layer.build_for_session()
        partitioned_weights.build_for_session(self.model)
        for optimizer in {id(inner): inner for inner in map(optimizers.innermost, self._optimizers())}.values():
            build_for_session(optimizer)
        step_hooks.trace_again(self.model)

    def _save_model(self) -> None:
        variables, sums = self._variables(), self._sums()
        self._saved = list(zip(variables, copies(variables)))
        self._saved_sums = list(zip(sums, copies(sums)))

    def _optimizers(self) -> list[Any]:
        """The one of the state and the one of the model, which may be a `LossScaleOptimizer` around it."""
        both = (self.optimizer, getattr(self.model, "optimizer", None))
        return [optimizer for optimizer in both if optimizer is not None]

    def _variables(self) -> list[Any]:
        """Returns the variables that all ranks share, each once."""
        variables = list(self.model.variables)
        for optimizer in self._optimizers():
            if not isinstance(optimizer, tf.compat.v1.train.Optimizer):  # those make their variables when they apply
                build_optimizer(optimizer, self.model.trainable_variables)
            variables += optimizer_variables(optimizer)
        return list({id(variable): variable for variable in variables}.values())

    def _sums(self) -> list[tf.Variable]:
        """Returns the sums of `backward_passes_per_step` so far: each rank's own, made by the first pass."""
        reducers = filter(None, map(wrapping.reducer_on, self._optimizers()))
        return [variable for each in reducers if each.passes is not None for variable in each.passes.variables]


class KerasState(TensorFlowKerasState):
    """`TensorFlowKerasState` under the name that `horovod.tensorflow.keras.elastic` has for it."""


def _is_taken_over_by_rank_0(variable: AnyVariable, value: object) -> bool:
    """False for what each rank takes over itself: values of which it has a part, or that follow the content."""
    return layout_of(variable) is None and not isinstance(value, tuple)
