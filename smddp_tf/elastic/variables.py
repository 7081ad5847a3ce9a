"""A state of a list of TensorFlow variables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import cloudpickle
import numpy as np
import tensorflow as tf

from smddp_tf.collectives.functions import broadcast_variables
from smddp_tf.collectives.layouts import layout_of
from smddp_tf.elastic.state import ObjectState
from smddp_tf.rendezvous import rounds


class VariablesState(ObjectState):
    """The base of states that keep copies of variables besides attributes."""

    def save(self) -> None:
        """Keeps the present values of the variables and the attributes."""
        self._save_model()
        super().save()

    def _save_model(self) -> None:
        raise NotImplementedError

    def _frozen(self) -> Any:
        return {**self.to_disk(), "attributes": cloudpickle.dumps(super().to_disk())}  # the values are copies


class TensorFlowState(VariablesState):
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

    def restore(self) -> None:
        """Gives variables and attributes the values of the last `save`."""
        self._restore_variables()
        super().restore()

    def sync(self) -> None:
        """Gives all ranks the present variables, and the saved attributes, of rank 0, and saves the variables.

        Raises:
            RuntimeError: variables are partitioned over ranks that have changed.
        """
        if rounds.has_changed() and any(layout_of(variable) is not None for variable in self.variables):
            raise RuntimeError(
                "Variables are partitioned over the ranks of a session that has ended, and other processes are the "
                "ranks now. TensorFlowKerasState, which knows their model and optimizer, gives each rank its part."
            )
        if self.session is None:
            broadcast_variables(self.variables, root_rank=0)
        else:
            self._values = self._bcast_object(self.session.run(self.variables))
            self._restore_variables()
        self._save_model()
        super().sync()

    def to_disk(self) -> Any:
        """The saved values and attributes.

        Raises:
            NotImplementedError: this rank has a part only of one of the variables.
        """
        if any(layout_of(variable) is not None for variable in self.variables):
            raise NotImplementedError("Variables that are partitioned over ranks are saved by TensorFlowKerasState.")
        return {"values": [np.asarray(value) for value in self._values], "attributes": super().to_disk()}

    def from_disk(self, content: dict[str, Any]) -> None:
        """Takes over values and attributes. Raises ValueError when they are of other variables."""
        check_fit(self.variables, content["values"])
        self._values = content["values"]
        super().from_disk(content["attributes"])
        self.restore()

    def _save_model(self) -> None:
        self._values = copies(self.variables) if self.session is None else self.session.run(self.variables)

    def _restore_variables(self) -> None:
        for variable, value in zip(self.variables, self._values):
            if self.session is None:
                variable.assign(value)
            else:
                variable.load(value, self.session)


def copies(variables: Sequence[Any]) -> list[tf.Tensor]:
    """The values, which later assignments do not change; on the devices where they are."""
    return [tf.identity(tf.convert_to_tensor(variable)) for variable in variables]


def check_fit(variables: Sequence[Any], values: Sequence[Any]) -> None:
    have = [getattr(layout_of(variable), "full_shape", tuple(variable.shape)) for variable in variables]
    came = [value if isinstance(value, tuple) else value.shape for value in values]
    if have == came:
        return
    first = next((i for i, (a, b) in enumerate(zip(have, came)) if a != b), min(len(have), len(came)))
    raise ValueError(
        f"The commit is of another model or optimizer: {len(came)} variables instead of {len(have)}; the first that "
        f"differs is number {first}, {came[first : first + 1]} instead of {have[first : first + 1]}."
    )
