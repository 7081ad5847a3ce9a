"""The plan of a `fit` or an `evaluate` for the ranks: made once, before Keras begins, and passed as an argument.

There are two ways to train on several ranks: Horovod's, where each rank brings its own data and the script wraps the
optimizer, and a `keras.distribution`, where all ranks read the same global batches. They differ in how their
`TrainerPlan` is made, and nowhere else in `fit`.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from smddp_tf import process_sets
from smddp_tf._native import loader
from smddp_tf.basics import is_initialized, rank, size
from smddp_tf.keras import callbacks as of_hvd
from smddp_tf.keras._backend import keras
from smddp_tf.keras.callbacks.uneven_batches import JOIN, OFF
from smddp_tf.keras.data_parallel import global_batches, layer_states
from smddp_tf.keras.fit import epoch_data, forgotten, stopping
from smddp_tf.keras.roles import current_distribution, optimizers, running, step_hooks, wrapping
from smddp_tf.monitor import recording

# Of such data Keras ignores `shuffle`, with a warning if it is true.
IGNORES_SHUFFLE = (tf.data.Dataset, types.GeneratorType)
_WRITE = ("BackupAndRestore", "CSVLogger", "ModelCheckpoint", "OrbaxCheckpoint", "RemoteMonitor", "TensorBoard")


@dataclasses.dataclass
class TrainerPlan:
    """One call of `fit` or `hvd.evaluate` on this rank.

    Attributes:
        model: what is trained or evaluated.
        users: the user's callbacks.
        arguments: of `fit`, with `self`; empty in an evaluation.
        is_guarded: whether the ranks keep together in all they do; else they train alone, or do not seem to reduce.
        has_others: whether there are other ranks that could train with this one.
        reduces: whether an optimizer of the model reduces over all ranks.
        distribution: the `keras.distribution` that holds; None: Horovod's way.
        before: callbacks that this library adds before the user's.
        after: callbacks that this library adds after the user's.
        throughput: the one that measures; None: nothing does.
        data: what Keras's iterator reads, from when that is made on; set by `init_iterator`.
        awaits_iterator: whether Keras has not begun yet to make that iterator.
    """

    model: Any
    arguments: dict[str, Any]
    users: list[Any] = dataclasses.field(default_factory=list)
    is_guarded: bool = False
    has_others: bool = True
    reduces: bool = False
    distribution: Any = None
    before: list[Any] = dataclasses.field(default_factory=list)
    after: list[Any] = dataclasses.field(default_factory=list)
    throughput: of_hvd.Throughput | None = None
    data: epoch_data.EpochData | None = None
    awaits_iterator: bool = True

    @property
    def has_callback_list(self) -> bool:
        """Has the user made Keras's list of callbacks himself? It stays, with the callbacks as they are."""
        return isinstance(self.arguments["callbacks"], keras.callbacks.CallbackList)

    @property
    def callbacks(self) -> list[Any]:
        """All but those that the guard itself adds."""
        return [*self.before, *self.users, *self.after]

    @property
    def epochs(self) -> tuple[int, int]:
        """The first epoch, and the end, as `fit` was asked for."""
        return self.arguments["initial_epoch"], self.arguments["epochs"]

    @property
    def epochs_ahead(self) -> int:
        """How many epochs of a guarded `fit` the data are read for, at least 1; else 0."""
        return int(max(self.epochs[1] - self.epochs[0], 1)) if self.is_guarded else 0

    @property
    def mode(self) -> str:
        """Of `UnevenBatchesCallback`. A step that reduces in ways of its own cannot tell which ranks are active."""
        chosen = [each.uneven_mode for each in self.callbacks if hasattr(each, "uneven_mode")]
        return [JOIN, *chosen][-1] if self.reduces else OFF

    def step_kind(self, kind: str, watched: bool) -> step_hooks.StepKind:
        """Of the steps of `kind` ("train" or "test"); `watched` as in `StepsPlan`."""
        of_pairs = watched if kind == "train" else self.distribution is not None
        return step_hooks.StepKind.under(self.distribution, of_pairs)


def plan_of_fit(arguments: dict[str, Any]) -> TrainerPlan:
    """The plan of a `fit` with these arguments, with `self` and all defaults among them."""
    model = arguments["self"]
    is_inner = any(plan.is_guarded and plan.model is model for plan in running.here.plans)
    plan = TrainerPlan(model, arguments, stopping.flat(arguments["callbacks"]), reduces=wrapping.model_reduces(model))
    plan.has_others = is_initialized() and size() > 1 and not is_inner
    _measure(plan)
    if current_distribution.current() is not None and not is_inner:
        return _of_distribution(plan)
    return _of_own_data(plan) if plan.has_others else plan


def init_iterator(plain: Callable[..., None], self: Any, *args: Any, **kwargs: Any) -> None:
    """The constructor of Keras's iterators, which also prepares the data.

    The first iterator that Keras makes in a call of `fit` or `hvd.evaluate` has the data of that call.

    Args:
        plain: Keras's constructor.
        self: the iterator.
        args, kwargs: the arguments of the constructor.
    """
    awaiting = (each for each in running.here.plans[-1:] if each.awaits_iterator)
    plan = next(awaiting, TrainerPlan(None, {}))  # of a validation, or of Keras's own `evaluate`, nothing is planned
    plan.awaits_iterator = False
    part = global_batches.make_iterator(plain, self, plan.epochs_ahead, *args, **kwargs)
    plan.data = epoch_data.EpochData(self, part, plan.arguments.get("x"), has_rows=plan.epochs_ahead == 0)
    if plan.throughput is not None:
        plan.throughput.data = plan.data


def one_progress_bar(arguments: dict[str, Any]) -> None:
    """Silences this rank's progress bar, and Keras's warning about `shuffle`, unless it is rank 0's.

    Args:
        arguments: of `fit`, `evaluate` or `predict`. Unchanged on rank 0 and under SMDDP_ALL_PROGRESS_BARS=1.
    """
    if is_initialized() and not loader.core().switch("SMDDP_ALL_PROGRESS_BARS") and rank() != 0:
        arguments["verbose"] = 0
        if isinstance(arguments.get("x"), IGNORES_SHUFFLE) and "shuffle" in arguments:
            arguments["shuffle"] = False


def _of_distribution(plan: TrainerPlan) -> TrainerPlan:
    """Under a `keras.distribution`: the ranks always keep together, and need no callbacks for that."""
    layer_states.refuse_stateful(plan.model)
    one_progress_bar(plan.arguments)
    if not plan.has_callback_list:
        plan.users = _writing_on_rank_zero(plan.users)
    plan.before = [*_callbacks_before(plan.model, plan.users), *plan.before]
    plan.is_guarded, plan.distribution = True, current_distribution.current()
    return plan


def _callbacks_before(model: keras.Model, users: list[keras.callbacks.Callback]) -> list[keras.callbacks.Callback]:
    """Returns the callbacks that come before the user's, unless these have such ones."""
    added: list[keras.callbacks.Callback] = []
    if not any(isinstance(each, of_hvd.BroadcastGlobalVariablesCallback) for each in users):
        added.append(of_hvd.BroadcastGlobalVariablesCallback(0, local_variables=optimizers.local_of(model)))
    if not any(isinstance(each, (of_hvd.MetricAverageCallback, of_hvd.MetricSumCallback)) for each in users):
        added.append(of_hvd.MetricSumCallback())
    return added


def _writing_on_rank_zero(callbacks: list[keras.callbacks.Callback]) -> list[keras.callbacks.Callback]:
    """The callbacks, with those of Keras that write files doing so on rank 0 only."""
    classes = tuple(getattr(keras.callbacks, name) for name in _WRITE if hasattr(keras.callbacks, name))
    on_all = of_hvd.BestModelCheckpoint  # belongs on all ranks, and writes on one
    return [of_hvd.on_rank_zero(c) if isinstance(c, classes) and not isinstance(c, on_all) else c for c in callbacks]


def _of_own_data(plan: TrainerPlan) -> TrainerPlan:
    """Horovod's way: the ranks keep together where the model's optimizer reduces, or a callback weighs by samples."""
    is_meant_for_all = forgotten.is_meant_for_all_ranks(plan.model, plan.callbacks)
    # Where there are process sets, which ranks train together is the user's to know.
    if not plan.reduces and len(process_sets.process_set_ids()) == 1:
        plan.after = [forgotten.FirstStep(is_meant_for_all)]
    plan.is_guarded = plan.reduces or any(getattr(each, "counts_samples", False) for each in plan.callbacks)
    if plan.is_guarded or is_meant_for_all:
        one_progress_bar(plan.arguments)
    return plan


def _measure(plan: TrainerPlan) -> None:
    """Has a `Throughput` measure the `fit`, where the user has given one or a recording runs."""
    given = [callback for callback in plan.users if isinstance(callback, of_hvd.Throughput)]
    plan.before = [of_hvd.Throughput()] if recording.current() is not None and not given else []
    plan.throughput = next(iter([*given, *plan.before]), None)
    if plan.throughput is not None:
        plan.throughput.tensorboards = _one_tensorboard(plan)


def _one_tensorboard(plan: TrainerPlan) -> list[Any]:
    """Lets TensorBoards write on rank 0 only, where all ranks train together. Returns those that write here."""
    board = keras.callbacks.TensorBoard
    together = is_initialized() and size() > 1 and (plan.reduces or current_distribution.current() is not None)
    if together and not plan.has_callback_list:
        plan.users = [of_hvd.on_rank_zero(c) if isinstance(c, board) else c for c in plan.users]
    return [callback for callback in plan.users if isinstance(callback, board)]
