"""The ways of training on several ranks."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import smddp_tf.keras as hvk
import smddp_tf.keras.distribution
from tests.random import data, models, objective
from tests.random.alone import Outcome, validation_rows
from tests.random.case import Case
from tests.random.data import Plan, Rows


def train(case: Case, plan: Plan, rows: Rows, rank: int, size: int) -> Outcome:
    """What this rank ends with; names as in `alone.train`."""
    with _distribution(case):
        model = models.build(case, distributed=True, apart=rank if case.apart else 0)
        run = {"distribution": _fit, "optimizer": _fit, "distribution_batch": _on_batches, "batch": _on_batches}
        model, history = run.get(case.way, _loop)(case, model, plan, rows, rank, size)
        return _outcome(case, model, history, plan, rows, rank)


@contextlib.contextmanager
def _distribution(case: Case) -> Iterator[None]:
    if not case.distribution:
        yield
        return
    with smddp_tf.keras.distribution.DataParallel(partition_state=_degree(case)).scope():
        yield


def _degree(case: Case) -> Any:
    return int(case.shard) if case.shard.isdigit() else case.shard or None


def _reduction(case: Case) -> dict[str, Any]:
    """Arguments of the tape, and most of those of the optimizer."""
    made: dict[str, Any] = {"op": getattr(hvk, case.op), "sparse_as_dense": case.sparse_as_dense}
    if case.groups:
        made["num_groups"] = 2
    if case.predivide:
        made["gradient_predivide_factor"] = 2.0
    return made


def _wrapping(case: Case) -> dict[str, Any]:
    return {
        **_reduction(case),
        "backward_passes_per_step": case.passes,
        "average_aggregated_gradients": case.averaged,
        "partition_state": _degree(case),
    }


def _compile(case: Case, model: keras.Model) -> None:
    optimizer = objective.optimizer_of(case)
    if case.way in ("optimizer", "apply", "batch"):
        optimizer = hvk.DistributedOptimizer(optimizer, **_wrapping(case))
    model.compile(optimizer, **objective.compile_arguments(case), **_how(case))


def _build_optimizer(case: Case, model: keras.Model) -> None:
    """Once there are the weights of rank 0: ScheduleFreeAdamW copies them, in a graph in every step."""
    if not case.lazy and case.optimizer == "ScheduleFreeAdamW":
        model.optimizer.build(model.trainable_variables)


def _how(case: Case) -> dict[str, Any]:
    return {"run_eagerly": case.eager, "jit_compile": case.jit, "steps_per_execution": case.steps_per_execution}


def _fit(case: Case, model: keras.Model, plan: Plan, rows: Rows, rank: int, size: int) -> tuple[Any, list[dict]]:
    _compile(case, model)
    history: list[dict] = []
    for call in range(1 + case.saved):
        if call:
            model = _saved_and_loaded(case, model, rank)
        batches = plan.whole if case.distribution else plan.ranks[rank]
        options = data.fit_arguments(case, rows, batches)
        if case.validation:
            options["validation_data"] = validation_rows(rows).arguments()
            options["validation_batch_size"] = data.plan_rows(case, size)
        callbacks: list[Any] = []
        if not case.distribution:
            callbacks = [hvk.callbacks.BroadcastGlobalVariablesCallback(0), hvk.callbacks.MetricSumCallback()]
        seen = model.fit(**options, epochs=case.epochs, verbose=0, callbacks=callbacks).history
        history += [{name: values[epoch] for name, values in seen.items()} for epoch in range(case.epochs)]
    return model, history


def _on_batches(case: Case, model: keras.Model, plan: Plan, rows: Rows, rank: int, size: int) -> tuple[Any, list]:
    _compile(case, model)
    if case.apart:
        hvk.broadcast_variables(model.variables, root_rank=0)
    _build_optimizer(case, model)
    for index in plan.ranks[rank]:
        batch = rows.at(index)
        options = {"class_weight": data.CLASS_WEIGHTS} if case.weights == "class" else {"sample_weight": batch.weight}
        model.train_on_batch(batch.x, batch.y, **options)
    return model, []


def _loop(case: Case, model: keras.Model, plan: Plan, rows: Rows, rank: int, size: int) -> tuple[Any, list]:
    """A loop of one's own; `compile` is for the loss."""
    _compile(case, model)
    if case.apart:
        hvk.broadcast_variables(model.variables, root_rank=0)
    _build_optimizer(case, model)

    def step(x: Any, y: Any, weight: Any) -> None:
        with tf.GradientTape() as tape:
            loss = model.compute_loss(x, y, model(x, training=True), weight, training=True)
            loss = model.optimizer.scale_loss(loss)
        if case.way == "tape":
            tape = hvk.DistributedGradientTape(tape, **_reduction(case))
        variables = model.trainable_variables
        model.optimizer.apply(tape.gradient(loss, variables), variables)

    run = step if case.eager else tf.function(step, jit_compile=case.jit, reduce_retracing=True)
    for index in plan.ranks[rank]:
        run(*data.of_classes(case, rows.at(index)).tensors())
    return model, []


def _saved_and_loaded(case: Case, model: keras.Model, rank: int) -> keras.Model:
    """Through one file of rank 0's; all ranks save where they have parts."""
    folder = hvk.broadcast_object(tempfile.mkdtemp() if rank == 0 else None, root_rank=0)
    path = Path(folder, "model.keras")
    if case.cut or rank == 0:
        model.save(path)
    hvk.barrier()
    if case.distribution:
        loaded = keras.models.load_model(path)
    else:
        loaded = hvk.load_model(path, **_wrapping(case))
    loaded.of_case = {name: loaded.get_layer(name) for name in model.of_case}
    loaded.run_eagerly = case.eager
    return loaded


def _outcome(case: Case, model: keras.Model, history: list[dict], plan: Plan, rows: Rows, rank: int) -> Outcome:
    outcome = {f"weights {name}": value for name, value in models.weights_of(model).items()}
    outcome["iterations"] = np.asarray(model.optimizer.iterations)
    if history:
        outcome.update({f"history {name}": np.array([logs[name] for logs in history], float) for name in history[0]})
    if case.distribution:
        whole = data.evaluate_arguments(case, rows, plan.whole)
        evaluated = model.evaluate(**whole, verbose=0, return_dict=True)
        predictions = model.predict(rows.x, batch_size=len(plan.whole[0]), verbose=0)
    else:
        mine = data.evaluate_arguments(case, rows, plan.ranks[rank])
        evaluated = hvk.evaluate(model, **mine, verbose=0, return_dict=True)
        predictions = model(rows.x, training=False)
    outcome.update({f"evaluate {name}": np.array(value) for name, value in evaluated.items()})
    for i, prediction in enumerate(tf.nest.flatten(predictions)):
        outcome[f"predict {i}"] = np.asarray(prediction)
    return outcome
