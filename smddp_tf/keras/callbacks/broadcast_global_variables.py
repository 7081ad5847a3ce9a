"""BroadcastGlobalVariablesCallback: all ranks start from one rank's variables."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from smddp_tf._native.threads import of_thread
from smddp_tf._warn import warn
from smddp_tf.basics import size
from smddp_tf.collectives import functions, ops, rank_facts, reduce_op, root_ranks
from smddp_tf.collectives.tensor_types import AnyOptimizer, AnyVariable
from smddp_tf.keras._backend import build_optimizer, keras, optimizer_variables
from smddp_tf.keras.adapted_layers import share_adapted
from smddp_tf.keras.roles.optimizers import being_accumulated, innermost, iterations_of, slots_of

_NAME = "BroadcastGlobalVariablesCallback"


class BroadcastGlobalVariablesCallback(keras.callbacks.Callback):
    """Copies the model's and the optimizer's variables from one rank to all others when training starts.

    Needed whenever ranks could differ at the start: random initial weights, or a checkpoint that only `root_rank` has
    loaded. Sent are weights, statistics of layers such as `BatchNormalization`, states of seed generators (from which
    each rank draws numbers of its own), and the optimizer's variables (slots, step counter, learning rate), and what
    preprocessing layers of the model have learned by `adapt` (vocabularies, boundaries, mean and variance). Metrics are
    left alone.

    Variables that exist on all ranks when `fit` begins are sent before the first batch. A model that is built by its
    first batch has none then; its variables are sent after that batch. Prefer a model with an `Input`: its first batch
    is not spent on weights that are thrown away. Gradients that ranks have accumulated together
    (`gradient_accumulation_steps`) stay each rank's own; those of a root that has come further than others are sent.

    Example:

    >>> model.fit(dataset, callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)])

    Args:
        root_rank: Integer, the rank to copy from.
        device: Taken for compatibility with Horovod; has no effect.
        local_variables: List of variables that each rank keeps as its own, such as its part of a table
            (`part_of_table.trainable_weights`). Defaults to none.
    """

    for_all_ranks = True
    broadcasts_weights = True  # `fit` need not look whether the ranks began with the same

    def __init__(self, root_rank: int, device: str = "", local_variables: Iterable[AnyVariable] | None = None) -> None:
        super().__init__()
        self.root_rank = root_ranks.checked_root(root_rank)
        self._kept_local = list(local_variables or [])
        self._sent: list[Any] = []
        self._has_batches = self._settled = False

    def register_local_var(self, var: AnyVariable) -> None:
        """Adds a variable to `local_variables`. Call it before `fit`, or in an `on_batch_end` that replaces ours."""
        if any(var is sent for sent in self._sent):
            warn(
                f"The variable {getattr(var, 'path', var.name)!r} has been sent already, so all ranks have begun this "
                "`fit` with the same value. Call `register_local_var` before `fit`."
            )
        self._kept_local.append(var)

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Sends what exists. Every rank asks first whether all ranks have it, so all make the same calls."""
        self._sent = []
        self._has_batches = self._settled = False
        ready = _build_optimizer_of(self.model)
        # Nothing is sent before a batch where other code has replaced our `on_batch_end`, as with Horovod.
        ours = getattr(self.on_batch_end, "__func__", None) is BroadcastGlobalVariablesCallback.on_batch_end
        if not rank_facts.any_rank(not (ready and ours), f"{_NAME} (is the model built)"):
            self._send()

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        """Resets the callback: the next `fit` sends again. Warns on rank 0 if nothing had been sent."""
        if self._has_batches and not self._settled and not self._sent and size() > 1:
            rank_facts.warn_on_rank_zero(
                f"{type(self).__name__} has sent no variables in this `fit`: its `on_batch_end` was not called. An "
                "`on_batch_end` or `on_train_batch_end` that replaces that of BroadcastGlobalVariablesCallback must "
                "call it: super().on_batch_end(batch, logs)."
            )
        self._sent = []

    def on_batch_begin(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Notes that there are batches."""
        self._has_batches = True

    def on_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """After the first batch, sends everything if any rank has variables that were not sent."""
        if self._settled:
            return
        self._settled = True
        missing = bool(set(map(id, self._variables())) - set(map(id, self._sent)))
        if rank_facts.any_rank(missing, f"{_NAME} (are variables missing)"):
            self._send()

    def _send(self) -> None:
        self._sent = self._variables(_sums_to_keep(getattr(self.model, "optimizer", None)))
        functions.broadcast_variables(self._sent, root_rank=self.root_rank)
        share_adapted(self.model, self.root_rank)

    def _variables(self, but: Iterable[AnyVariable] = ()) -> list[AnyVariable]:
        """The variables to send, each once, in an order that follows from the model's structure."""
        optimizer = getattr(self.model, "optimizer", None)
        candidates = [*self.model.variables, *(optimizer_variables(optimizer) if optimizer is not None else [])]
        kept = [*but, *self._kept_local, *slots_of(optimizer, self._kept_local)]
        left_out = {id(variable) for variable in (*kept, *getattr(self.model, "metrics_variables", []))}
        each_once = {id(variable): variable for variable in candidates if id(variable) not in left_out}
        return [each for each in each_once.values() if hasattr(each, "assign")]  # not so the lookup tables of Keras 2


def _build_optimizer_of(model: keras.Model) -> bool:
    """Creates the optimizer's variables where the model has its own; returns whether both have.

    A model whose own step applies its layers need not be built itself.
    """
    layers = list(model._flatten_layers(include_self=False))
    if not (model.built or (layers and all(layer.built for layer in layers))):
        return False
    if (optimizer := getattr(model, "optimizer", None)) is not None:
        build_optimizer(optimizer, model.trainable_variables)
    return True


def _sums_to_keep(optimizer: AnyOptimizer | None) -> list[AnyVariable]:
    """Gradients being accumulated, if all ranks have made equally many steps."""
    sums = [] if optimizer is None else being_accumulated(optimizer)
    if not sums:
        return []
    count = tf.cast(tf.convert_to_tensor(iterations_of(innermost(optimizer))), tf.int64)
    name = of_thread(f"{_NAME} (are the numbers of steps equal)")
    most, least = ops.allreduce(tf.stack([count, -count]), op=reduce_op.Max, name=name).numpy()
    return sums if most == -least else []
