"""How one optimizer reduces its gradients: its settings, its memory between two calls, and what one update depends on.

What is done with gradients, and in which order, is in `pipeline.py`.
"""

from __future__ import annotations

import contextlib
import enum
import functools
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from smddp_tf.collectives import graph
from smddp_tf.collectives.reduce_op import Average
from smddp_tf.gradients import reduced_once
from smddp_tf.gradients.local_sources import KeptGradients, LocalSources
from smddp_tf.gradients.options import ReduceOptions
from smddp_tf.gradients.reducer import GradientReducer
from smddp_tf.keras.optimizer.accumulation import Passes
from smddp_tf.keras.roles import global_means, running
from smddp_tf.keras.roles.active_ranks import ActiveRanks, Window
from smddp_tf.keras.sharding.sharded_state import ShardedState

_updating = threading.local()


def ids_with_gradients(grads: Sequence[Any], variables: Sequence[Any]) -> frozenset[int]:
    """The ids of the variables that have a gradient."""
    return frozenset(id(variable) for grad, variable in zip(grads, variables) if grad is not None)


class When(enum.Enum):
    """When the gradients that an optimizer's `apply` gets are reduced over the ranks."""

    EACH_CALL = "In each call, before Keras sees them."
    AFTER_PASSES = "When the passes of `backward_passes_per_step` are added up, before Keras sees the sums."
    AFTER_WINDOW = "When Keras's passes are added up, before the finite check of the `LossScaleOptimizer` around them."
    IN_UPDATE = "Where Keras, which adds up the passes itself, updates the variables: in `_backend_update_step`."
    NOT_HERE = "Keras will do nothing, or raise its own error, or an update further out has reduced them."


class UpdateContext(NamedTuple):
    """What an update depends on: asked once, when an optimizer gets gradients, and passed on by argument.

    Attributes:
        optimizer: the outermost optimizer that is ours: a `LossScaleOptimizer` where there is one.
        wrapped: the outermost of it and the inner one that has a wrapped class; programs call its methods, and replace
            them.
        reducer: of both.
        state: what is cut of the inner optimizer's state; None where each rank has all of it.
        active: which ranks have data in this step; None where all have.
        when: when the gradients are reduced.
        variables: what they are the gradients of; see `of`.
        kept: which of them stay on this rank.
        over_ranks: reduces the others over the ranks: `over_ranks(grads, variables)`.
        by_tape: whether `hvd.DistributedGradientTape` has reduced the gradients.
        keras: Keras's part: `keras(grads)` applies them; None where they are reduced only.
    """

    optimizer: Any
    wrapped: Any
    reducer: OptimizerReducer
    state: ShardedState | None
    active: ActiveRanks | None
    when: When
    variables: Sequence[Any] = ()
    kept: KeptGradients = KeptGradients([], [], set())
    over_ranks: GradientReducer | None = None
    by_tape: bool = False
    keras: Any = None

    def of(self, variables: Sequence[Any]) -> UpdateContext:
        """The same update, for the gradients of these variables."""
        kept = self.reducer.local.kept(variables)
        shared = [variable for index, variable in enumerate(variables) if index not in kept.all]
        over_ranks = self.reducer.over_ranks(shared, self.state)
        return self._replace(variables=list(variables), kept=kept, over_ranks=over_ranks)

    def variables_of(self, grads: Sequence[Any], given: list[Any] | None) -> list[Any] | None:
        """The variables that belong to `grads`, or None where Keras will do nothing or raise.

        Args:
            grads: gradients or None.
            given: what came with them; None stands for the variables that the optimizer was built with.
        """
        if given is None:
            trained = self.reducer.inner._trainable_variables if self.state is None else self.state.wholes
            given = list(trained) if self.optimizer.built else []
            return given if len(given) == len(grads) else None
        return given if grads else None

    def reduced_by_tape(self, grads: Sequence[Any]) -> bool:
        """Whether `hvd.DistributedGradientTape` has reduced them.

        Args:
            grads: those of `variables`.

        Raises:
            ValueError: It has, and reducing them again would give other numbers.
        """
        settings = self.reducer.settings
        op = settings.op if self.active is None else None
        return reduced_once.by_tape(grads, self.variables, self.kept.all, settings.process_set, op)

    def apply(self, reduced: Sequence[Any]) -> Any:
        """Keras's part."""
        with self.reducer.applying(self):
            return self.keras(reduced)


class OptimizerReducer:
    """The state of one optimizer object that reduces.

    It is a plain Python attribute of the optimizer that neither Keras nor TensorFlow tracks: it is in no saved file and
    no checkpoint.

    Attributes:
        settings: how it reduces.
        inner: the optimizer that updates the weights; inside a `LossScaleOptimizer`, which shares the reducer.
        update: the `UpdateContext` of the update whose reduced gradients Keras is applying: they pass through. None
            where there is none.
        local: the variables whose gradients stay on this rank.
        passes: adds up the gradients of several calls first; None where every call is an update.
        window: counts the active passes of this rank, for an optimizer with several passes per update whose data were
            uneven once; None for others.
        names: for `made_anew.py`, the names in the configurations of its optimizers.
        is_scaled: whether a `LossScaleOptimizer` is around the optimizer, and looks for infinities in its gradients.
        is_inherited: the same: whether Keras made the optimizer from one of those, nobody wrapping it.
        computed: for Keras 2, the ids of variables whose gradients were computed, and so reduced, but not yet applied:
            in graphs (False), and eagerly (True).
        aggregated: the same, of those that a `LossScaleOptimizer` around it, or the program, has let it reduce.
        reductions: the same: how much had been reduced in graphs, and eagerly, when gradients were last applied.
        of_distribution: whether it reduces only because there is a `keras.distribution`.
    """

    def __init__(self, settings: ReduceOptions, inner: Any) -> None:
        self.settings, self.inner = settings, inner
        self.update: UpdateContext | None = None
        self.names: dict[str, str] = {}
        self.is_inherited = False
        self.of_distribution = False
        self.is_scaled = False
        self.local = LocalSources(settings)
        count = settings.backward_passes_per_step
        self.passes = Passes(count, settings.average_aggregated_gradients) if count > 1 else None
        self.window: Window | None = None
        self.computed: dict[bool, frozenset[int]] = {False: frozenset(), True: frozenset()}
        self.aggregated: frozenset[int] = frozenset()
        self.reductions = (0, 0)
        self._sharded: ShardedState | None = None
        # By what differs between lists of gradients. The first refuses wrong settings now, not when training begins.
        self._reducers = {(settings.gradient_predivide_factor, False, 1): GradientReducer(self.name, settings)}

    @property
    def name(self) -> str:
        """Of the optimizer, in messages and names of requests; the same on all ranks."""
        return self.settings.name or "optimizer"

    def takes_computed(self, grads: Sequence[Any], variables: Sequence[Any]) -> bool:
        """Are these the gradients of variables in `computed`, or what was made of them? They are taken out of it."""
        ids = ids_with_gradients(grads, variables)
        eagerly = tf.executing_eagerly()
        if ids and ids <= self.computed[eagerly]:
            self.computed[eagerly] -= ids
            return True
        return eagerly and bool(ids) and ids <= self.computed[False]  # what a graph returns in every step

    def sharded(self) -> ShardedState | None:
        """The parts of the state on this rank; None where each rank has all of it."""
        if self.settings.partition_state is None:
            return None
        if self._sharded is None:
            self._sharded = ShardedState(self.settings.partition_state, self.name)
        return self._sharded if self._sharded.degree > 1 else None

    def update_of(self, optimizer: Any, apply: Callable[..., Any], grads: Sequence[Any], given: Any) -> UpdateContext:
        """What the update depends on that an optimizer's `apply` makes.

        Args:
            optimizer: see `UpdateContext`.
            apply: `apply(grads, trainable_variables)` of the optimizer's own class.
            grads: gradients or None.
            given: the variables, or None for those the optimizer was built with.

        Raises:
            ValueError: Reducing gradients that a tape has reduced would give other numbers.
        """
        context, given = self.update or self.context_of(optimizer), None if given is None else list(given)
        if context.state is not None and optimizer is self.inner:
            apply = functools.partial(context.state.apply, optimizer, apply)
        context = context._replace(keras=lambda reduced: apply(reduced, given))
        variables = context.variables_of(grads, given)
        if variables is None or self.update is not None:
            return context._replace(when=When.NOT_HERE)
        self.is_scaled = optimizer is not self.inner
        context = context.of(variables)
        return context._replace(by_tape=context.reduced_by_tape(grads))

    def context_of(self, optimizer: Any) -> UpdateContext:
        """Asks what an update depends on. The gradients are still to come: see `UpdateContext.of`.

        Args:
            optimizer: see `UpdateContext`.
        """
        wrapped = optimizer if hasattr(optimizer, "_allreduce") else self.inner
        state, is_scaled = self.sharded(), optimizer is not self.inner
        return UpdateContext(optimizer, wrapped, self, state, running.here.active, self._when_reduced(state, is_scaled))

    def _when_reduced(self, state: ShardedState | None, is_scaled: bool) -> When:
        """The one answer. `is_scaled`: there is a `LossScaleOptimizer` around."""
        if state is None and getattr(self.inner, "gradient_accumulation_steps", None):
            return When.AFTER_WINDOW if is_scaled else When.IN_UPDATE
        return When.EACH_CALL if self.passes is None else When.AFTER_PASSES

    def over_ranks(self, variables: Sequence[Any], state: ShardedState | None) -> GradientReducer:
        """Returns what reduces the gradients of `variables` over the ranks; the same object for the same needs.

        Args:
            state: what `sharded` returns.
        """
        parts = 1 if state is None else state.planned_parts
        needs = (self._range_of_float16(variables), self._keeps_repeated_rows(), parts)
        if needs not in self._reducers:
            factor, repeated_rows, parts = needs
            settings = self.settings._replace(gradient_predivide_factor=factor)
            self._reducers[needs] = GradientReducer(self.name, settings, repeated_rows=repeated_rows, parts=parts)
        return self._reducers[needs]

    def _keeps_repeated_rows(self) -> bool:
        """Is it to be as in one process, to whose optimizer each lookup of a row is a gradient of its own?"""
        if not self.of_distribution or self.settings.sparse_as_dense:
            return False
        batch = global_means.global_batch()
        return not graph.compiling() or (batch is not None and batch.has_equal_parts)

    def _range_of_float16(self, variables: Sequence[Any]) -> float:
        """Returns what to divide by before the sum: where gradients are float16, the sum of several could overflow.

        It is a power of two, which costs float32 gradients of the same optimizer no accuracy. Not for a float16 *wire*
        (`Compression.fp16`), where small float32 gradients would be lost.
        """
        narrow = any(tf.as_dtype(variable.dtype) == tf.float16 for variable in variables)
        if not narrow or self.settings.op != Average or self.settings.gradient_predivide_factor != 1.0:
            return self.settings.gradient_predivide_factor
        return float(2 ** math.ceil(math.log2(self.local.ranks())))

    def open_window(self) -> Window:
        """Returns `window`, which is made where it does not exist."""
        if self.window is None:
            self.window = Window()
        return self.window

    @contextlib.contextmanager
    def applying(self, update: UpdateContext) -> Iterator[None]:
        """Inside, Keras applies the gradients of `update`: those of an optimizer further in have been reduced."""
        before, self.update = self.update, update
        _updating.depth = getattr(_updating, "depth", 0) + 1
        try:
            yield
        finally:
            self.update = before
            _updating.depth -= 1


def is_updating() -> bool:
    """Is an optimizer applying gradients that it has reduced, on this thread? Those inside of it have nothing to do."""
    return bool(getattr(_updating, "depth", 0))
