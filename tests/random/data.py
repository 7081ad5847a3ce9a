"""The rows of a case, which rank has which of them in which batch, and the kinds of objects that `fit` takes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from tests.random.case import Case
from tests.random.models import CLASSES, FEATURES, LENGTH, SIDE, TABLES, WORDS, output_names

CLASS_WEIGHTS = {0: 0.5, 1: 2.0, 2: 1.0}


class Rows(NamedTuple):
    """Arrays with one row for each sample, as `fit` takes them."""

    x: Any
    y: Any
    weight: Any

    def at(self, index: Sequence[int] | np.ndarray) -> Rows:
        """These rows only."""
        index = np.asarray(index, int)
        return Rows(
            *(None if part is None else tf.nest.map_structure(lambda array: array[index], part) for part in self)
        )

    def tensors(self) -> Rows:
        return Rows(*(None if part is None else tf.nest.map_structure(tf.convert_to_tensor, part) for part in self))

    def arguments(self) -> tuple:
        """`x, y` or `x, y, sample_weight`."""
        return (self.x, self.y) if self.weight is None else tuple(self)

    @property
    def count(self) -> int:
        return len(tf.nest.flatten(self.x)[0])


class Plan(NamedTuple):
    """The rows of each rank's batches; under keras.distribution those of the batches of all ranks."""

    ranks: list[list[np.ndarray]]
    whole: list[np.ndarray]

    def steps(self) -> int:
        return max(map(len, self.ranks))

    def active(self, step: int) -> list[np.ndarray]:
        """The batches of the ranks that have one."""
        return [batches[step] for batches in self.ranks if step < len(batches)]


def plan_of(case: Case, size: int) -> Plan:
    if case.distribution and case.fits:
        rows, batch = case.batch * size * case.steps, case.batch * size
        if case.uneven == "rows":
            rows -= int(case.numbers(1).integers(1, batch)) if batch > 1 else 0
        if case.norm == "syncbn" and rows % batch == 1:  # one row has no statistics
            rows += 1
        whole = [np.arange(first, min(first + batch, rows)) for first in range(0, rows, batch)]
        return Plan([], whole)
    random, first, ranks = case.numbers(2), 0, []
    most = int(random.integers(size))
    for rank in range(size):
        count = case.steps if case.uneven != "batches" or rank == most else int(random.integers(case.steps + 1))
        sizes = [case.batch] * count
        if case.uneven and sizes:
            sizes[-1] = int(random.integers(1 if case.norm != "syncbn" else 2, case.batch + 1))
        batches = []
        for rows in sizes:
            batches.append(np.arange(first, first + rows))
            first += rows
        ranks.append(batches)
    steps = [[batches[step] for batches in ranks if step < len(batches)] for step in range(case.steps)]
    return Plan(ranks, [np.concatenate(batches) for batches in steps])


def rows_of(case: Case, plan: Plan) -> Rows:
    """Equal on all ranks; words repeat, and some of them are masked."""
    count = 1 + max(int(rows.max()) for rows in plan.whole)
    random = case.numbers(3)
    floats = "float32" if case.floats == "float32" else "float64"
    if case.front == "table":
        x: Any = {
            name: random.integers(0, rows - 1, (count, ids) if ids else count).astype("int32")
            for name, (rows, ids) in TABLES.items()
        }
    elif case.front == "embedding":
        x = random.integers(0, WORDS - 2, (count, LENGTH)).astype("int32")
        x[:, 0] = np.maximum(x[:, 0], 1)  # no row is masked whole
    elif case.front == "dense":
        x = random.normal(size=(count, FEATURES)).astype(floats)
    else:
        x = random.normal(size=(count, LENGTH, FEATURES)).astype(floats)
        if case.masked:
            x[random.random((count, LENGTH)) < 0.4] = 0
            x[:, 0] = np.maximum(np.abs(x[:, 0]), 0.1)
    if case.side:
        x = x if isinstance(x, dict) else {"x": x}
        x["side"] = random.normal(size=(count, SIDE)).astype(floats)
    return Rows(x, _targets(case, count, floats, random), _weights(case, count, floats, random))


def _targets(case: Case, count: int, floats: str, random: np.random.Generator) -> Any:
    shape = (count, LENGTH) if case.masked == "loss" else (count,)
    made = {}
    for i, name in enumerate(output_names(case)):
        loss = case.loss_of(i)
        if loss == "binary_crossentropy":
            made[name] = random.integers(0, 2, (*shape, 2)).astype(floats)
        elif loss == "sparse_categorical_crossentropy":
            made[name] = random.integers(0, CLASSES, shape).astype("int32")
        elif loss == "categorical_crossentropy":
            made[name] = np.eye(CLASSES, dtype=floats)[random.integers(0, CLASSES, shape)]
        else:
            made[name] = random.normal(size=(*shape, 2)).astype(floats)
    if case.outputs == 1:
        return made["head0"]
    return made if case.nested == "dict" else list(made.values())


def _weights(case: Case, count: int, floats: str, random: np.random.Generator) -> Any:
    if case.weights not in ("sample", "zeros"):
        return None
    made = random.uniform(0.1, 3, count).astype(floats)
    if case.weights == "zeros":
        made[random.random(count) < 0.5] = 0
    if case.outputs == 1:
        return made
    each = {name: made * (1 + i) for i, name in enumerate(output_names(case))}
    return each if case.nested == "dict" else list(each.values())


def of_classes(case: Case, rows: Rows) -> Rows:
    """With the weights of classes as sample weights, as `fit` makes them."""
    if case.weights != "class":
        return rows
    return rows._replace(weight=np.vectorize(CLASS_WEIGHTS.get)(rows.y).astype(keras.config.floatx()))


def fit_arguments(case: Case, rows: Rows, batches: list[np.ndarray]) -> dict[str, Any]:
    """These batches as arguments of `fit` or `evaluate`."""
    options = {"class_weight": CLASS_WEIGHTS} if case.weights == "class" else {}
    index = np.concatenate(batches) if batches else np.zeros(0, int)
    mine, size = rows.at(index), max(map(len, batches), default=case.batch)
    if case.data == "arrays":
        named = {"sample_weight": mine.weight} if mine.weight is not None else {}
        return {"x": mine.x, "y": mine.y, "batch_size": size, "shuffle": case.shuffled, **named, **options}
    if case.data == "dataset":
        dataset = tf.data.Dataset.from_tensor_slices(_tuples(mine))
        dataset = dataset.shuffle(100, seed=case.number) if case.shuffled else dataset
        return {"x": dataset.batch(size), **options}
    if case.data == "PyDataset":
        return {"x": _Batches(rows, batches), "shuffle": False, **options}
    return {"x": _generated(rows, batches), "steps_per_epoch": len(batches), **options}


def evaluate_arguments(case: Case, rows: Rows, batches: list[np.ndarray]) -> dict[str, Any]:
    """The same for `evaluate`."""
    made = fit_arguments(case, rows, batches)
    made = {name: value for name, value in made.items() if name not in ("shuffle", "class_weight")}
    if "steps_per_epoch" in made:
        made["steps"] = made.pop("steps_per_epoch")
    return made


def _tuples(rows: Rows) -> tuple:
    """What tf.data, and Keras in generators, take for nested; lists would become tensors."""
    return tuple(tuple(part) if isinstance(part, list) else part for part in rows.arguments())


class _Batches(keras.utils.PyDataset):
    def __init__(self, rows: Rows, batches: list[np.ndarray]):
        super().__init__()
        self._rows, self._batches = rows, batches

    def __len__(self) -> int:
        return len(self._batches)

    def __getitem__(self, index: int) -> tuple:
        return _tuples(self._rows.at(self._batches[index]))


def _generated(rows: Rows, batches: list[np.ndarray]) -> Iterator[tuple]:
    while True:
        for batch in batches:
            yield _tuples(rows.at(batch))


def plan_rows(case: Case, size: int) -> int:
    """The rows of a batch of all ranks."""
    return case.batch * size
