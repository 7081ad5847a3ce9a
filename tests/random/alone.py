"""The oracle: one process that has the batches of all ranks, with plain Keras and nothing of this library."""

from __future__ import annotations

import dataclasses
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tests.random import data, models, objective
from tests.random.case import Case
from tests.random.data import Plan, Rows

Outcome = dict[str, np.ndarray]


def train(case: Case, plan: Plan, rows: Rows, size: int) -> Outcome:
    """What the ranks must end with, by name."""
    model = models.build(case, distributed=False)
    optimizer = objective.optimizer_of(case)
    model.compile(optimizer, run_eagerly=not _needs_a_graph(case), **objective.compile_arguments(case))
    history: list[dict[str, Any]] = []
    for _ in range(1 + case.saved):
        history += (
            _fitted(model, case, plan, rows, size) if _needs_a_graph(case) else _stepped(model, case, plan, rows, size)
        )
    outcome = {f"weights {name}": value for name, value in models.weights_of(model).items()}
    outcome["iterations"] = np.asarray(model.optimizer.iterations)
    if case.fits:
        outcome.update({f"history {name}": np.array([logs[name] for logs in history], float) for name in history[0]})
    return {**outcome, **_used(model, case, plan, rows)}


def use(case: Case, plan: Plan, rows: Rows, trained: Outcome) -> Outcome:
    """What `evaluate` and `predict` of a model with these weights must give; the rest is as it is."""
    model = models.build(dataclasses.replace(case, lazy=False), distributed=False)
    model.compile(run_eagerly=True, **objective.compile_arguments(case))
    for name, layer in model.of_case.items():
        layer.set_weights([trained[f"weights {name}/{i}"] for i in range(len(layer.weights))])
    return {**trained, **_used(model, case, plan, rows)}


def _used(model: keras.Model, case: Case, plan: Plan, rows: Rows) -> Outcome:
    """By `evaluate` and `predict`."""
    outcome: Outcome = {}
    outcome.update({f"evaluate {name}": np.array(value) for name, value in _evaluated(model, case, plan, rows).items()})
    for i, prediction in enumerate(tf.nest.flatten(model(rows.x, training=False))):
        outcome[f"predict {i}"] = np.asarray(prediction)
    return outcome


def _needs_a_graph(case: Case) -> bool:
    """Keras counts the losses of single outputs by rows in eager mode, and in a graph by batches if these vary."""
    return case.way == "distribution" and case.outputs > 1 and (bool(case.uneven) or case.validation)


def _fitted(model: keras.Model, case: Case, plan: Plan, rows: Rows, size: int) -> list[dict[str, Any]]:
    """By Keras's own `fit`."""
    options = data.fit_arguments(case, rows, plan.whole)
    if case.validation:
        options["validation_data"] = validation_rows(rows).arguments()
        options["validation_batch_size"] = data.plan_rows(case, size)
    seen = model.fit(**options, epochs=case.epochs, verbose=0).history
    return [{name: values[epoch] for name, values in seen.items()} for epoch in range(case.epochs)]


def _stepped(model: keras.Model, case: Case, plan: Plan, rows: Rows, size: int) -> list[dict[str, Any]]:
    """Step by step, in eager mode."""
    epoch = _epoch_of_whole_batches if case.distribution else _Parts().epoch
    history = []
    for _ in range(case.epochs):
        logs = epoch(model, case, plan, rows)
        if case.validation:
            logs.update(_validated(model, case, rows, size))
        history.append(logs)
    if case.fits:
        model.optimizer.finalize_variable_values(model.trainable_variables)
    return history


def validation_rows(rows: Rows) -> Rows:
    return rows.at(range(1 + rows.count // 2))


def _validated(model: keras.Model, case: Case, rows: Rows, ranks: int) -> dict[str, Any]:
    """In batches like those of training."""
    seen = validation_rows(rows)
    size = data.plan_rows(case, ranks)
    model.reset_metrics()
    logs: dict[str, Any] = {}
    for first in range(0, seen.count, size):
        batch = seen.at(range(first, min(first + size, seen.count)))
        logs = model.test_step((batch.x, batch.y, batch.weight))
    return {f"val_{name}": value for name, value in _taken(model, logs).items()}


def _taken(model: keras.Model, logs: dict[str, Any]) -> dict[str, np.ndarray]:
    """The numbers; the metrics begin again."""
    numbers = {name: np.asarray(value, float) for name, value in logs.items()}
    model.reset_metrics()
    return numbers


def _epoch_of_whole_batches(model: keras.Model, case: Case, plan: Plan, rows: Rows) -> dict[str, Any]:
    model.reset_metrics()
    logs: dict[str, Any] = {}
    for index in plan.whole:
        batch = data.of_classes(case, rows.at(index))
        logs = model.train_step((batch.x, batch.y, batch.weight))
    return _taken(model, logs)


def _evaluated(model: keras.Model, case: Case, plan: Plan, rows: Rows) -> dict[str, Any]:
    """Metrics over all batches: each rank's where each brings its own."""
    if _needs_a_graph(case):
        found = model.evaluate(**data.evaluate_arguments(case, rows, plan.whole), verbose=0, return_dict=True)
        return {name: np.asarray(value) for name, value in found.items()}
    batches = plan.whole if case.distribution else [index for batches in plan.ranks for index in batches]
    model.reset_metrics()
    logs: dict[str, Any] = {}
    for index in batches:
        batch = rows.at(index)
        logs = model.test_step((batch.x, batch.y, batch.weight))
    return _taken(model, logs)


class _Parts:
    """Each step averages (or adds up) the gradients of the batches of the ranks that have one."""

    def __init__(self) -> None:
        self._passes: list[tuple[list[Any], int]] = []  # sums over ranks, and how many ranks there were
        self._done = 0

    def epoch(self, model: keras.Model, case: Case, plan: Plan, rows: Rows) -> dict[str, Any]:
        """One epoch; returns its logs: metrics over the batches of all ranks."""
        model.reset_metrics()
        logs: dict[str, Any] = {}
        for step in range(plan.steps()):
            parts = [data.of_classes(case, rows.at(index)) for index in plan.active(step)]
            total, logs = self._gradients(model, case, parts)
            self._passes.append((total, len(parts)))
            self._done += 1
            if len(self._passes) == case.passes:
                self._update(model, case)
            elif case.passes > 1:
                model.optimizer.iterations.assign(self._done)
        return _taken(model, logs)

    def _update(self, model: keras.Model, case: Case) -> None:
        """Learning rates and the like count passes."""
        sums, ranks = zip(*self._passes)
        self._passes = []
        divisor = 1.0
        if case.op == "Average":
            divisor *= np.mean(ranks)
        if case.averaged:
            divisor *= case.passes
        if case.passes > 1:
            model.optimizer.iterations.assign(self._done - 1)
        variables = model.trainable_variables
        model.optimizer.apply([sum(each) / tf.cast(divisor, each[0].dtype) for each in zip(*sums)], variables)

    def _gradients(self, model: keras.Model, case: Case, parts: list[Rows]) -> tuple[list[Any], dict[str, Any]]:
        """The sum over the parts, each with a loss of its own, and the metrics so far."""
        logs: dict[str, Any] = {}
        with tf.GradientTape() as tape:
            losses = []
            for part, prediction in zip(parts, _predictions(model, case, parts)):
                loss = model.compute_loss(*_four(part, prediction), training=True)
                count = part.count
                model._loss_tracker.update_state(loss, sample_weight=count)
                logs = model.compute_metrics(*_four(part, prediction))
                losses.append(model.optimizer.scale_loss(loss))
            total = sum(losses)
        gradients = tape.gradient(total, model.trainable_variables)
        return [tf.convert_to_tensor(each) for each in gradients], logs


def _predictions(model: keras.Model, case: Case, parts: list[Rows]) -> Any:
    """One after the other, as each loss wants its own penalties; statistics are those of all parts together."""
    if case.norm != "syncbn":
        for part in parts:
            yield model(part.x, training=True)
        return
    together = tf.nest.map_structure(lambda *arrays: np.concatenate(arrays), *(part.x for part in parts))
    predictions = model(together, training=True)
    first = 0
    for part in parts:
        rows = slice(first, first + part.count)
        yield tf.nest.map_structure(lambda whole, rows=rows: whole[rows], predictions)
        first += part.count


def _four(part: Rows, prediction: Any) -> tuple:
    return part.x, part.y, prediction, part.weight
