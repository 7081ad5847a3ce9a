"""`evaluate` and `predict` under a distribution: every rank does a part and returns the result for the whole.

`train_on_batch` too, but that there the parts are given: its step is one of all ranks.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from smddp_tf import basics
from smddp_tf._native.threads import of_thread
from smddp_tf.collectives import ops
from smddp_tf.collectives.layouts import layout_of
from smddp_tf.collectives.objects import allgather_object
from smddp_tf.data import arrays
from smddp_tf.data.agreement import agree, rank_and_size
from smddp_tf.keras import patch_table, patches
from smddp_tf.keras._backend import keras
from smddp_tf.keras.data_parallel.array_batches import rows_of_rank
from smddp_tf.keras.data_parallel.global_batches import limited
from smddp_tf.keras.data_parallel.layer_states import agree_on_states, refuse_stateful, stateful_layer
from smddp_tf.keras.data_parallel.same_data import OWN_PARTS, checksums
from smddp_tf.keras.fit.evaluate import evaluate
from smddp_tf.keras.fit.plan import one_progress_bar
from smddp_tf.keras.roles import running
from smddp_tf.keras.roles.current_distribution import current, refuse_alone, set_aside, shards_batches
from smddp_tf.keras.roles.step_hooks import StepKind, hooks_of


def install() -> None:
    """Replaces `evaluate`, `predict` and `train_on_batch` of `Model`; does nothing the second time."""
    patches.wrap(patch_table.EVALUATE, _evaluate)
    patches.wrap(patch_table.PREDICT, _predict)
    patches.wrap(patch_table.TRAIN_ON_BATCH, _train_on_batch)


def _train_on_batch(plain: Callable[..., Any], self: Any, *args: Any, **kwargs: Any) -> Any:
    if current() is None:
        return plain(self, *args, **kwargs)
    self.make_train_function()
    with hooks_of(self, "train").installed_in(self, StepKind.under(current(), of_pairs=False)):
        return plain(self, *args, **kwargs)


def _evaluate(plain: Callable[..., Any], self: Any, *args: Any, **kwargs: Any) -> Any:
    if any(map(layout_of, self.variables)):
        refuse_alone("`evaluate` of a model whose tables are sharded over the ranks")
    agree_on_states(self)
    in_fit = "_use_cached_eval_dataset" in kwargs
    in_evaluate = any(plan.awaits_iterator for plan in running.here.plans[-1:])  # called by `evaluate` below
    if current() is None or in_fit or in_evaluate:
        return plain(self, *args, **kwargs)
    refuse_stateful(self)
    arguments = inspect.signature(plain).bind(self, *args, **kwargs).arguments
    return evaluate(arguments.pop("self"), **arguments.pop("kwargs", {}), **arguments)


def _predict(plain: Callable[..., Any], self: Any, *args: Any, **kwargs: Any) -> Any:
    if any(map(layout_of, self.variables)):
        refuse_alone("`predict` of a model whose tables are sharded over the ranks")
    if current() is None:
        return plain(self, *args, **kwargs)
    bound = inspect.signature(plain).bind(self, *args, **kwargs)
    bound.apply_defaults()
    one_progress_bar(bound.arguments)
    data, steps = bound.arguments["x"], bound.arguments["steps"]
    if steps and isinstance(data, types.GeneratorType):
        bound.arguments["x"] = (batch for batch in limited(data, steps, self.steps_per_execution))
    shares = arrays.is_array_structure(data) and _is_worth_sharing(data, bound.arguments)
    agree_on_states(self, if_trained=not shares)
    with set_aside():
        if not shares:
            return plain(*bound.args, **bound.kwargs)
        what = {"samples": arrays.first_dimension(data), **checksums((data,))}
        agree(rank_and_size(None, None), what, False, None, "keras.distribution.DataParallel", OWN_PARTS)
        first, count = rows_of_rank(arrays.first_dimension(data), basics.rank(), basics.size())
        bound.arguments["x"] = arrays.rows(data, np.arange(first, first + count))
        bound.arguments["batch_size"] = -(-(bound.arguments["batch_size"] or 32) // basics.size())
        mine, name = plain(*bound.args, **bound.kwargs), of_thread("keras.Model.predict")
        return keras.tree.map_structure(lambda part: _of_all_ranks(part, name), mine)


def _of_all_ranks(part: Any, name: str) -> Any:
    if isinstance(part, np.ndarray) and not part.dtype.hasobject:
        return ops.allgather(part, name=name).numpy()
    parts = allgather_object(part, name=name)  # strings, ragged tensors
    return np.concatenate(parts) if isinstance(part, np.ndarray) else tf.concat(parts, 0)


def _is_worth_sharing(data: object, arguments: dict[str, Any]) -> bool:
    """Has every rank all rows and something to do, and may ranks make different numbers of steps?"""
    model = arguments["self"]
    shards = shards_batches() and not any(map(layout_of, model.variables)) and stateful_layer(model) is None
    return shards and arguments["steps"] is None and arrays.first_dimension(data) >= basics.size()
