"""Distributed `Model.evaluate`: each rank brings a part of the data, every rank gets the result for all of them.

And `evaluate` and `predict` under a distribution: every rank does a part and returns the result for the whole.
`train_on_batch` too, but that there the parts are given: its step is one of all ranks.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from smddp_tf._native.threads import of_thread
from smddp_tf.basics import rank, size
from smddp_tf.collectives import layouts, ops, rank_facts
from smddp_tf.data import arrays
from smddp_tf.data.agreement import agree, rank_and_size
from smddp_tf.keras import patch_table, patches
from smddp_tf.keras._backend import keras, needs_keras_3
from smddp_tf.keras.data_parallel.global_batches import limited, rows_of_rank
from smddp_tf.keras.data_parallel.layer_states import agree_on_states, refuse_stateful, stateful_layer
from smddp_tf.keras.data_parallel.same_data import OWN_PARTS, checksums
from smddp_tf.keras.fit.epoch_data import EpochData, zeros_of
from smddp_tf.keras.fit.guard import compare_evaluated
from smddp_tf.keras.fit.plan import TrainerPlan, one_progress_bar
from smddp_tf.keras.metric_merge import Seen, exact_metrics, merged, numeric_entries, states_of
from smddp_tf.keras.roles import running
from smddp_tf.keras.roles.current_distribution import current, refuse_alone, set_aside, shards_batches
from smddp_tf.keras.roles.step_hooks import StepKind, hooks_of

_NAME = "hvd.evaluate"
_WHICH = f"{_NAME} (which metrics)"


def evaluate(model: keras.Model, x: Any = None, y: Any = None, *, return_dict: bool = False, **options: Any) -> Any:
    """Evaluates the model on the data of all ranks together.

    Each rank passes its own part; parts may differ in size, and may be empty. The states of the metrics are added up
    over the ranks before results are computed from them, so the results are what one process would get for all the
    data: also for metrics that no averaging of results can give, such as AUC, precision and recall.

    Exact are the metrics of Keras and subclasses of those, whose states are sums. The result of a metric of your own,
    derived from `keras.metrics.Metric` itself, becomes the mean over ranks weighted by their numbers of samples, unless
    the metric says `additive_state = True` or has a method `merge_state(metrics)`. The same holds for values that a
    `test_step` of your own returns beside the model's metrics. What gives a metric one number for each batch, such as
    the losses of single outputs, counts as often as the batch has rows.

    Example:

    >>> results = hvd.evaluate(model, hvd.data.shard(test_data), return_dict=True)

    Args:
        model: Compiled `keras.Model`, with the same weights on all ranks.
        x: This rank's part of the data, as for `keras.Model.evaluate`.
        y: As for `keras.Model.evaluate`.
        return_dict: Boolean. `True` returns a dictionary, `False` a list (a number, if there is only the loss), as
            `keras.Model.evaluate`. Defaults to `False`.
        options: `batch_size`, `verbose`, `sample_weight`, `steps`, `callbacks`, as for `keras.Model.evaluate`. What the
            progress bar, of rank 0 only, and the callbacks show is their rank's own.

    Returns:
        The results, equal on all ranks.

    Raises:
        RuntimeError: If the evaluation failed on another rank.
        ValueError: If ranks have different metrics.
    """
    needs_keras_3("hvd.evaluate")
    refuse_alone("hvd.evaluate")
    if size() == 1:
        return model.evaluate(x, y, return_dict=return_dict, **options)
    one_progress_bar(options)
    try:
        logs, samples, data = _evaluate_part(model, x, y, options)
    except Exception as error:
        rank_facts.objects_of_ranks({"error": f"{type(error).__name__}: {error}"}, _WHICH)
        raise
    _check_same_metrics(model, logs)
    compare_evaluated(model, data)
    passes = {"": Seen(samples, states_of(exact_metrics(model)))}
    found = merged(model, numeric_entries(logs), passes, _NAME, takes_over=True)
    logs = {key: found.get(key, value) for key, value in logs.items()}
    return logs if return_dict else model._flatten_metrics_in_order(logs)


def _evaluate_part(model: keras.Model, x: Any, y: Any, options: Any) -> tuple[dict[str, Any], float, EpochData | None]:
    """The results of this rank's part of the data, its number of samples, and what Keras's iterator has read."""
    plan, hooks = TrainerPlan(model, {}, distribution=current()), hooks_of(model, "test")
    before = float(hooks.samples)  # of a `fit` that counts already, and goes on where it was
    with hooks.installed_in(model, plan.step_kind("test", watched=False)):
        hooks.samples.assign(0.0)
        try:
            with running.within(plans=(*running.here.plans, plan)):
                logs = model.evaluate(x, y, return_dict=True, **options)
                samples = float(hooks.samples)
                logs = logs if samples else _logs_without_data(model, plan.data)
                return logs, samples, plan.data
        finally:
            hooks.samples.assign(before)


def _logs_without_data(model: keras.Model, data: Any) -> dict[str, Any]:
    """A rank without data has seen no batch, and metrics are made by the first: it gets one, and forgets it."""
    spec = data.dataset.element_spec
    x, y, weight = keras.utils.unpack_x_y_sample_weight(zeros_of(spec if data.part is None else spec[1]))
    logs: dict[str, Any] = model.test_on_batch(x, y, weight, return_dict=True)
    model.reset_metrics()
    return logs


def _check_same_metrics(model: keras.Model, logs: dict[str, Any]) -> None:
    states = [(each.name, [tuple(variable.shape) for variable in each.variables]) for each in exact_metrics(model)]
    of_ranks = rank_facts.facts_of_ranks({"results": sorted(logs), "states": states}, _WHICH, "`evaluate`")
    for other, facts in enumerate(of_ranks):
        if facts != of_ranks[0]:
            raise ValueError(
                "`evaluate` needs a model with the same metrics on all ranks. "
                f"Received: {of_ranks[0]} on rank 0 and {facts} on rank {other}."
            )


# --- under a distribution


def replace_inference() -> None:
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
    if any(map(layouts.layout_of, self.variables)):
        refuse_alone("`evaluate` of a model whose tables are partitioned over the ranks")
    agree_on_states(self)
    in_fit = "_use_cached_eval_dataset" in kwargs
    in_evaluate = any(plan.awaits_iterator for plan in running.here.plans[-1:])  # called by `evaluate` below
    if current() is None or in_fit or in_evaluate:
        return plain(self, *args, **kwargs)
    refuse_stateful(self)
    arguments = inspect.signature(plain).bind(self, *args, **kwargs).arguments
    return evaluate(arguments.pop("self"), **arguments.pop("kwargs", {}), **arguments)


def _predict(plain: Callable[..., Any], self: Any, *args: Any, **kwargs: Any) -> Any:
    if any(map(layouts.layout_of, self.variables)):
        refuse_alone("`predict` of a model whose tables are partitioned over the ranks")
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
        first, count = rows_of_rank(arrays.first_dimension(data), rank(), size())
        bound.arguments["x"] = arrays.rows(data, np.arange(first, first + count))
        bound.arguments["batch_size"] = -(-(bound.arguments["batch_size"] or 32) // size())
        mine = plain(*bound.args, **bound.kwargs)
        return keras.tree.map_structure(lambda part: _of_all_ranks(part, "keras.Model.predict"), mine)


def _of_all_ranks(part: Any, name: str) -> Any:
    if isinstance(part, np.ndarray) and not part.dtype.hasobject:
        return ops.allgather(part, name=of_thread(name)).numpy()
    parts = rank_facts.objects_of_ranks(part, name)  # strings, ragged tensors
    return np.concatenate(parts) if isinstance(part, np.ndarray) else tf.concat(parts, 0)


def _is_worth_sharing(data: object, arguments: dict[str, Any]) -> bool:
    """Has every rank all rows and something to do, and may ranks make different numbers of steps?"""
    model = arguments["self"]
    shards = shards_batches() and not any(map(layouts.layout_of, model.variables)) and stateful_layer(model) is None
    return shards and arguments["steps"] is None and arrays.first_dimension(data) >= size()
