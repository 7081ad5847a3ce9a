"""Distributed `Model.evaluate`: each rank brings a part of the data, every rank gets the result for all of them."""

from __future__ import annotations

from typing import Any

from smddp_tf.basics import size
from smddp_tf.collectives.rank_facts import facts_of_ranks, objects_of_ranks
from smddp_tf.keras._backend import keras, needs_keras_3
from smddp_tf.keras.fit.epoch_data import EpochData, zeros_of
from smddp_tf.keras.fit.guard import compare_evaluated
from smddp_tf.keras.fit.plan import TrainerPlan, one_progress_bar
from smddp_tf.keras.metric_merge import Seen, exact_metrics, merged, numeric_entries, states_of
from smddp_tf.keras.roles import running
from smddp_tf.keras.roles.current_distribution import current, refuse_alone
from smddp_tf.keras.roles.step_hooks import hooks_of

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
        objects_of_ranks({"error": f"{type(error).__name__}: {error}"}, _WHICH)
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
    batch = zeros_of(spec if data.part is None else spec[1])
    x, y, weight = keras.utils.unpack_x_y_sample_weight(batch)
    logs: dict[str, Any] = model.test_on_batch(x, y, weight, return_dict=True)
    model.reset_metrics()
    return logs


def _check_same_metrics(model: keras.Model, logs: dict[str, Any]) -> None:
    states = [(each.name, [tuple(variable.shape) for variable in each.variables]) for each in exact_metrics(model)]
    of_ranks = facts_of_ranks({"results": sorted(logs), "states": states}, _WHICH, "`evaluate`")
    for rank, facts in enumerate(of_ranks):
        if facts != of_ranks[0]:
            raise ValueError(
                "`evaluate` needs a model with the same metrics on all ranks. "
                f"Received: {of_ranks[0]} on rank 0 and {facts} on rank {rank}."
            )
