"""`evaluate` and `predict` under a distribution: every rank does a part and returns the result for the whole."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from smddp_tf import basics, ops
from smddp_tf._native.threads import of_thread
from smddp_tf.data import arrays
from smddp_tf.gradients.local_sources import layout_of
from smddp_tf.keras import patch_table, patches
from smddp_tf.keras._backend import keras
from smddp_tf.keras.data_parallel.array_batches import cut
from smddp_tf.keras.data_parallel.current import current, refuse_alone, set_aside
from smddp_tf.keras.data_parallel.fitting import quiet_elsewhere
from smddp_tf.keras.data_parallel.layer_states import agree_on_states
from smddp_tf.keras.fit.evaluate import evaluate
from smddp_tf.keras.fit.patch import somebody_expects_iterator


def install() -> None:
    """Replaces `Model.evaluate` and `Model.predict`; does nothing the second time."""
    patches.replace(patch_table.EVALUATE, _evaluating_all)
    patches.replace(patch_table.PREDICT, _predicting_all)


def _evaluating_all(plain_evaluate: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(plain_evaluate)

    @functools.wraps(plain_evaluate)
    def evaluate_all(self: Any, *args: Any, **kwargs: Any) -> Any:
        if any(map(layout_of, self.variables)):
            refuse_alone("`evaluate` of a model whose tables are cut over the ranks")
        agree_on_states(self)
        is_of_fit = "_use_cached_eval_dataset" in kwargs
        if current() is None or is_of_fit or somebody_expects_iterator():  # the last: `evaluate` below
            return plain_evaluate(self, *args, **kwargs)
        arguments = signature.bind(self, *args, **kwargs).arguments
        quiet_elsewhere(arguments)
        return evaluate(arguments.pop("self"), **arguments.pop("kwargs", {}), **arguments)

    return evaluate_all


def _predicting_all(plain_predict: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(plain_predict)

    @functools.wraps(plain_predict)
    def predict_all(self: Any, *args: Any, **kwargs: Any) -> Any:
        if any(map(layout_of, self.variables)):
            refuse_alone("`predict` of a model whose tables are cut over the ranks")
        distribution = current()
        if distribution is None:
            return plain_predict(self, *args, **kwargs)
        bound = signature.bind(self, *args, **kwargs)
        bound.apply_defaults()
        quiet_elsewhere(bound.arguments)
        data = bound.arguments["x"]
        shares = arrays.is_array_structure(data) and _is_worth_sharing(data, distribution, bound.arguments)
        agree_on_states(self, if_trained=not shares)
        with set_aside():
            if not shares:
                return plain_predict(*bound.args, **bound.kwargs)
            first, count = cut(arrays.first_dimension(data), basics.rank(), basics.size())
            bound.arguments["x"] = arrays.rows(data, np.arange(first, first + count))
            bound.arguments["batch_size"] = -(-(bound.arguments["batch_size"] or 32) // basics.size())
            mine, name = plain_predict(*bound.args, **bound.kwargs), of_thread("keras.Model.predict")
            return keras.tree.map_structure(lambda part: ops.allgather(part, name=name).numpy(), mine)

    return predict_all


def _is_worth_sharing(data: Any, distribution: Any, arguments: dict[str, Any]) -> bool:
    """Has every rank all rows and something to do, and may ranks make different numbers of steps?"""
    shards = getattr(distribution, "_auto_shard_dataset", True) and not any(map(layout_of, arguments["self"].variables))
    return shards and arguments["steps"] is None and arrays.first_dimension(data) >= basics.size()
