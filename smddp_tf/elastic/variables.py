"""States that hold TensorFlow variables: a model with its optimizer, or any list."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from smddp_tf.elastic.state import ObjectState
from smddp_tf.functions import broadcast_variables
from smddp_tf.gradients.local_sources import layout_of


class TensorFlowState(ObjectState):
    """A state of a list of variables, and of Python objects.

    Example:

    >>> state = hvd.elastic.TensorFlowState([*model.variables, *optimizer.variables], batch=0, epoch=0)

    Args:
        variables: list of `tf.Variable`s or Keras variables, in the same order on all ranks. Defaults to
            `tf.compat.v1.global_variables()`.
        session: for graphs of TensorFlow 1, the session that holds the variables. Defaults to the session that is
            entered.
        kwargs: Python objects, which become attributes; see `ObjectState`.
    """

    def __init__(self, variables: Iterable[Any] | None = None, session: Any = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.variables = list(variables or tf.compat.v1.global_variables())
        self.session = session or tf.compat.v1.get_default_session()
        self._save_model()

    def save(self) -> None:
        """Keeps the present values of the variables and the attributes."""
        self._save_model()
        super().save()

    def restore(self) -> None:
        """Gives variables and attributes the values of the last `save`."""
        for variable, value in zip(self.variables, self._values):
            _assign(variable, value, self.session)
        super().restore()

    def sync(self) -> None:
        """Gives all ranks the present variables, and the saved attributes, of rank 0, and saves the variables."""
        if self.session is None:
            broadcast_variables(self.variables, root_rank=0)
        else:
            self._values = self._bcast_object(self.session.run(self.variables))
            for variable, value in zip(self.variables, self._values):
                _assign(variable, value, self.session)
        self._save_model()
        super().sync()

    def to_disk(self) -> Any:
        """The saved values and attributes.

        Raises:
            NotImplementedError: this rank has a part only of one of the variables.
        """
        if any(layout_of(variable) is not None for variable in self.variables):
            raise NotImplementedError("Variables that are cut over the ranks are saved by TensorFlowKerasState.")
        return {"values": [np.asarray(value) for value in self._values], "attributes": super().to_disk()}

    def from_disk(self, content: Any) -> None:
        """Takes over values and attributes. Raises ValueError when they are of other variables."""
        _check_fit(self.variables, content["values"])
        self._values = content["values"]
        super().from_disk(content["attributes"])
        self.restore()

    def _save_model(self) -> None:
        self._values = _copies(self.variables) if self.session is None else self.session.run(self.variables)


class TensorFlowKerasState(ObjectState):
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

    def __init__(self, model: Any, optimizer: Any = None, backend: Any = None, **kwargs: Any) -> None:
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
        self._save_model()

    def save(self) -> None:
        """Keeps the present values of model, optimizer and attributes."""
        self._save_model()
        super().save()

    def restore(self) -> None:
        """Gives model, optimizer and attributes the values of the last `save`."""
        for variable, value in self._saved:
            variable.assign(value)
        saved = {id(variable): value for variable, value in self._saved_sums}
        for variable in self._sums():
            variable.assign(saved.get(id(variable), tf.zeros_like(variable)))
        super().restore()

    def sync(self) -> None:
        """Gives all ranks the present variables, and the saved attributes, of rank 0, and saves the variables."""
        broadcast_variables(self._variables(), root_rank=0)
        self._save_model()
        super().sync()

    def to_disk(self) -> Any:
        """The saved values and attributes; not what `backward_passes_per_step` has added up.

        Of variables that are cut over the ranks it has the shape; their values follow, one by one.
        """
        values = [
            np.asarray(value) if layout_of(variable) is None else layout_of(variable).whole
            for variable, value in self._saved
        ]
        return {"values": values, "attributes": super().to_disk()}

    def from_disk(self, content: Any) -> None:
        """Takes over values and attributes. Raises ValueError when they are of another model."""
        variables = self._variables()
        _check_fit(variables, content["values"])
        self._saved = [pair for pair in zip(variables, content["values"]) if _is_taken_over_by_rank_0(*pair)]
        self._lacks_parts = len(self._saved) < len(variables)
        self._saved_sums.clear()
        super().from_disk(content["attributes"])
        self.restore()

    def _write_together(self) -> str:
        from smddp_tf.keras.saving.cut_tables import together

        return together(self.model, self._write, self._optimizers()) or ""

    def _after_content(self) -> Iterator[Any]:
        from smddp_tf.keras.saving.cut_tables import whole

        return (whole(variable) for variable, _ in self._saved if layout_of(variable) is not None)

    def _take_parts(self, commit: Iterator[Any]) -> None:
        from smddp_tf.keras.saving.cut_tables import cut

        for variable, value in zip(self._variables(), next(commit)["values"]):
            if not _is_taken_over_by_rank_0(variable, value):
                variable.assign(cut(variable, next(commit) if isinstance(value, tuple) else value))
        self._save_model()

    def _save_model(self) -> None:
        variables, sums = self._variables(), self._sums()
        self._saved = list(zip(variables, _copies(variables)))
        self._saved_sums = list(zip(sums, _copies(sums)))

    def _optimizers(self) -> list[Any]:
        """The one of the state and the one of the model, which may be a `LossScaleOptimizer` around it."""
        both = (self.optimizer, getattr(self.model, "optimizer", None))
        return [optimizer for optimizer in both if optimizer is not None]

    def _variables(self) -> list[Any]:
        """What all ranks share, each variable once."""
        from smddp_tf.keras._backend import build_optimizer, optimizer_variables

        variables = list(self.model.variables)
        for optimizer in self._optimizers():
            if not isinstance(optimizer, tf.compat.v1.train.Optimizer):  # those make their variables when they apply
                build_optimizer(optimizer, self.model.trainable_variables)
            variables += optimizer_variables(optimizer)
        return list({id(variable): variable for variable in variables}.values())

    def _sums(self) -> list[tf.Variable]:
        """What `backward_passes_per_step` has added up so far: every rank's own, and made by the first pass."""
        from smddp_tf.keras.roles.wrapping import reducer_on

        reducers = filter(None, map(reducer_on, self._optimizers()))
        return [variable for each in reducers if each.passes is not None for variable in each.passes.variables]


class KerasState(TensorFlowKerasState):
    """`TensorFlowKerasState` under the name that `horovod.tensorflow.keras.elastic` has for it."""

    def __init__(self, model: Any, optimizer: Any = None, **kwargs: Any) -> None:
        super().__init__(model, optimizer, **kwargs)


def _copies(variables: Sequence[Any]) -> list[tf.Tensor]:
    """The values, which later assignments do not change; on the devices where they are."""
    return [tf.identity(tf.convert_to_tensor(variable)) for variable in variables]


def _check_fit(variables: Sequence[Any], values: Sequence[Any]) -> None:
    have = [getattr(layout_of(variable), "whole", tuple(variable.shape)) for variable in variables]
    came = [value if isinstance(value, tuple) else value.shape for value in values]
    if have == came:
        return
    first = next((i for i, (a, b) in enumerate(zip(have, came)) if a != b), min(len(have), len(came)))
    raise ValueError(
        f"The commit is of another model or optimizer: {len(came)} variables instead of {len(have)}; the first that "
        f"differs is number {first}, {came[first : first + 1]} instead of {have[first : first + 1]}."
    )


def _is_taken_over_by_rank_0(variable: Any, value: Any) -> bool:
    """False for what each rank takes over itself: values of which it has a part, or that follow the content."""
    return layout_of(variable) is None and not isinstance(value, tuple)


def _assign(variable: Any, value: Any, session: Any) -> None:
    if session is None:
        variable.assign(value)
    else:
        variable.load(value, session)
