"""How one optimizer reduces its gradients: its settings, its memory between two calls, and what one update depends on.

The stages that gradients pass through are in `pipeline.py`.
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
from smddp_tf.keras.sharding.sharded_state import ShardedState, layouts_of

_updating = threading.local()


def ids_with_gradients(grads: Sequence[Any], variables: Sequence[Any]) -> frozenset[int]:
    """The ids of the variables that have a gradient."""
    return frozenset(id(variable) for grad, variable in zip(grads, variables) if grad is not None)


class When(enum.Enum):
    """When the gradients that an optimizer's `apply` gets are reduced over the ranks."""

    EACH_CALL = "In each call, before Keras sees them."
    AFTER_PASSES = "After the sum over the passes of `backward_passes_per_step`, before Keras sees it."
    AFTER_WINDOW = "After the sum over Keras's passes, before the finite check of the `LossScaleOptimizer` around them."
    IN_UPDATE = "In `_backend_update_step`, where Keras, which sums the passes itself, updates the variables."
    NOT_HERE = "Not at all: Keras will do nothing or raise, or an outer optimizer has reduced them."


class UpdateContext(NamedTuple):
    """The facts that an update depends on: determined once, when an optimizer gets gradients, and passed on calls.

    Attributes:
        optimizer: the outermost optimizer that reduces: a `LossScaleOptimizer` where there is one.
        wrapped: `optimizer` if it has a wrapped class, else the inner one; programs call its methods, and replace them.
        reducer: the reducer of both.
        state: the inner optimizer's sharded state; None where each rank has the full state.
        active: the ranks that have data in this step; None where all have.
        when: when the gradients are reduced.
        variables: the variables of the gradients; see `of`.
        kept: the gradients that stay on this rank.
        over_ranks: reduces the other gradients over the ranks: `over_ranks(grads, variables)`.
        by_tape: whether `hvd.DistributedGradientTape` has reduced the gradients.
        keras: `keras(grads)` lets Keras apply them; None where they are only reduced.
        clipped: the layouts of the gradients that Keras clips, where some are parts; see `layouts_of`.
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
    clipped: Sequence[Any] = ()

    def of(self, variables: Sequence[Any]) -> UpdateContext:
        """Returns a copy for the gradients of `variables`."""
        kept = self.reducer.local.kept(variables)
        shared = [variable for index, variable in enumerate(variables) if index not in kept.all]
        over_ranks = self.reducer.over_ranks(shared, self.state)
        return self._replace(variables=list(variables), kept=kept, over_ranks=over_ranks)

    def variables_of(self, grads: Sequence[Any], variables: list[Any] | None) -> list[Any] | None:
        """Returns the variables that belong to `grads`, or None where Keras will do nothing or raise.

        Args:
            grads: gradients or None.
            variables: the argument of `apply`; None stands for the variables that the optimizer was built with.
        """
        if variables is None:
            variables = list(self.reducer.built_for(self.state)) if self.optimizer.built else []
            return variables if len(variables) == len(grads) else None
        return variables if grads else None

    def reduced_by_tape(self, grads: Sequence[Any]) -> bool:
        """Returns whether `hvd.DistributedGradientTape` has reduced `grads`.

        Args:
            grads: the gradients of `variables`.

        Raises:
            ValueError: the tape has reduced them, and a second reduction would change the values.
        """
        settings = self.reducer.settings
        op = settings.op if self.active is None else None
        return reduced_once.by_tape(grads, self.variables, self.kept.all, settings.process_set, op)

    def apply(self, reduced: Sequence[Any]) -> Any:
        """Lets Keras apply reduced gradients."""
        context = self._replace(clipped=layouts_of(reduced, self.variables)) if self.kept.complete else self
        with self.reducer.applying(context):
            return self.keras(reduced)


class OptimizerReducer:
    """The settings and state of one optimizer object that reduces.

    The reducer is a plain Python attribute of the optimizer that neither Keras nor TensorFlow tracks: no saved file or
    checkpoint contains it.

    Attributes:
        settings: the user's settings.
        inner: the optimizer that updates the weights; a `LossScaleOptimizer` around it shares the reducer.
        update: the update whose reduced gradients Keras is applying; they are not reduced again. None at other times.
        local: the variables whose gradients stay on this rank.
        passes: sums the gradients of several calls first; None where every call is an update.
        window: counts the active passes of this rank; None unless there are several passes per update and the data
            have been uneven.
        names: for `from_config.py`, the names in the configurations of its optimizers.
        is_scaled: whether a `LossScaleOptimizer` is around the optimizer, and looks for infinities in its gradients.
        is_inherited: whether the optimizer reduces without having been wrapped by the user, who may still wrap it.
        computed: for Keras 2, the ids of variables whose gradients were computed, and so reduced, but not yet applied:
            in graphs (False), and eagerly (True).
        aggregated: for Keras 2, the ids of variables whose gradients a `LossScaleOptimizer` around it, or the program,
            has made it reduce.
        reductions: for Keras 2, the numbers of reductions in graphs, and eagerly, when gradients were last applied.
        of_distribution: whether it reduces only because there is a `keras.distribution`.
    """

    def __init__(self, settings: ReduceOptions, inner: Any, local: LocalSources | None = None) -> None:
        self.settings, self.inner = settings, inner
        self.update: UpdateContext | None = None
        self.names: dict[str, str] = {}
        self.is_inherited = False
        self.of_distribution = False
        self.is_scaled = False
        self.local = LocalSources(settings)
        if local is not None:
            self.local.add_those_of(local)
        count = settings.backward_passes_per_step
        self.passes = Passes(count, settings.average_aggregated_gradients) if count > 1 else None
        self.window: Window | None = None
        self.computed: dict[bool, frozenset[int]] = {False: frozenset(), True: frozenset()}
        self.aggregated: frozenset[int] = frozenset()
        self.reductions = (0, 0)
        self._sharded: ShardedState | None = None
        # By the arguments that differ between lists of gradients. The first one refuses wrong settings at once.
        self._reducers = {(settings.gradient_predivide_factor, False, 1): GradientReducer(self.name, settings)}

    @property
    def name(self) -> str:
        """The optimizer's name in messages and in names of requests; equal on all ranks."""
        return self.settings.name or "optimizer"

    def takes_computed(self, grads: Sequence[Any], variables: Sequence[Any]) -> bool:
        """Returns whether `grads` are, or were computed from, gradients of variables in `computed`; removes those."""
        ids = ids_with_gradients(grads, variables)
        eagerly = tf.executing_eagerly()
        if ids and ids <= self.computed[eagerly]:
            self.computed[eagerly] -= ids
            return True
        return eagerly and bool(ids) and ids <= self.computed[False]  # what a graph returns in every step

    def sharded(self) -> ShardedState | None:
        """Returns the sharded state; None where each rank has the full state."""
        if self.settings.partition_state is None:
            return None
        if self._sharded is None:
            self._sharded = ShardedState(self.settings.partition_state, self.name)
        return self._sharded if self._sharded.degree > 1 else None

    def forget_parts(self) -> Sequence[Any]:
        """Divides the state anew when the optimizer is built next, for the variables that this returns.

        The sums of `backward_passes_per_step` so far are forgotten.
        """
        state, self._sharded = self.sharded(), None
        if self.passes is not None:
            self.passes = Passes(self.passes.backward_passes_per_step, self.passes.average_aggregated_gradients)
        return self.built_for(state)

    def built_for(self, state: ShardedState | None) -> Sequence[Any]:
        """Returns the full variables that the optimizer was built for; `state` is its sharded state."""
        return self.inner._trainable_variables if state is None else state.variables

    def update_of(self, optimizer: Any, apply: Callable[..., Any], grads: Sequence[Any], given: Any) -> UpdateContext:
        """Returns the context of the update that an optimizer's `apply` makes.

        Args:
            optimizer: see `UpdateContext`.
            apply: `apply(grads, trainable_variables)` of the optimizer's own class.
            grads: gradients or None.
            given: the variables, or None for the variables that the optimizer was built with.

        Raises:
            ValueError: a tape has reduced the gradients, and a second reduction would change the values.
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
        """Returns the context of an update whose gradients are not known yet: see `UpdateContext.of`.

        Args:
            optimizer: see `UpdateContext`.
        """
        wrapped = optimizer if hasattr(optimizer, "_allreduce") else self.inner
        state, is_scaled = self.sharded(), optimizer is not self.inner
        return UpdateContext(optimizer, wrapped, self, state, running.here.active, self._when_reduced(state, is_scaled))

    def _when_reduced(self, state: ShardedState | None, is_scaled: bool) -> When:
        """Decides when gradients are reduced.

        Args:
            state: from `sharded`.
            is_scaled: whether a `LossScaleOptimizer` is around the optimizer.
        """
        if state is None and getattr(self.inner, "gradient_accumulation_steps", None):
            return When.AFTER_WINDOW if is_scaled else When.IN_UPDATE
        return When.EACH_CALL if self.passes is None else When.AFTER_PASSES

    def over_ranks(self, variables: Sequence[Any], state: ShardedState | None) -> GradientReducer:
        """Returns the reducer for the gradients of `variables`; the same object for the same arguments of it.

        Args:
            variables: the variables whose gradients are reduced.
            state: from `sharded`.
        """
        parts = 1 if state is None else state.planned_parts
        needs = (self._range_of_float16(variables), self._keeps_repeated_rows(), parts)
        if needs not in self._reducers:
            factor, repeated_rows, parts = needs
            settings = self.settings._replace(gradient_predivide_factor=factor)
            self._reducers[needs] = GradientReducer(self.name, settings, repeated_rows=repeated_rows, parts=parts)
        return self._reducers[needs]

    def _keeps_repeated_rows(self) -> bool:
        """Whether rows that occur several times stay separate, as the optimizer of a single process gets them."""
        if not self.of_distribution or self.settings.sparse_as_dense:
            return False
        batch = global_means.global_batch()
        return not graph.compiling() or (batch is not None and batch.has_equal_parts)

    def _range_of_float16(self, variables: Sequence[Any]) -> float:
        """Returns the divisor before the sum: a sum of float16 gradients could overflow.

        A power of two costs float32 gradients of the same optimizer no accuracy. A float16 *wire* (`Compression.fp16`)
        does not count: small float32 gradients would be lost.
        """
        narrow = any(tf.as_dtype(variable.dtype) == tf.float16 for variable in variables)
        if not narrow or self.settings.op != Average or self.settings.gradient_predivide_factor != 1.0:
            return self.settings.gradient_predivide_factor
        return float(2 ** math.ceil(math.log2(self.local.ranks())))

    @contextlib.contextmanager
    def applying(self, update: UpdateContext) -> Iterator[None]:
        """Inside, Keras applies the reduced gradients of `update`, and inner optimizers must not reduce them again."""
        before, self.update = self.update, update
        _updating.depth = getattr(_updating, "depth", 0) + 1
        try:
            yield
        finally:
            self.update = before
            _updating.depth -= 1


def is_updating() -> bool:
    """Returns whether an optimizer is applying reduced gradients on this thread; inner optimizers reduce nothing."""
    return bool(getattr(_updating, "depth", 0))
