"""A case: what is trained, on what, and how. Drawn from a seed and a number alone, so equal on all ranks."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence
from typing import Any

ELEMENTWISE = (
    "SGD",
    "Momentum",
    "Adam",
    "AMSGrad",
    "AdamW",
    "Adamax",
    "Nadam",
    "Lion",
    "RMSprop",
    "Adagrad",
    "Adadelta",
    "Ftrl",
    "ScheduleFreeAdamW",
)
WHOLE_TENSORS = ("Adafactor", "Lamb", "Muon")
LOSSES = (
    "mse",
    "mae",
    "huber",
    "binary_crossentropy",
    "sparse_categorical_crossentropy",
    "categorical_crossentropy",
    "one_number",
    "one_per_row",
)
WAYS = ("distribution", "optimizer") * 2 + ("tape", "apply", "batch", "distribution_batch")
DISTRIBUTION = ("distribution", "distribution_batch")


@dataclasses.dataclass(frozen=True)
class Case:
    """Every field has the simplest value as its default, to which a finding is shrunk."""

    seed: int
    number: int
    # How it is trained: `fit` under keras.distribution, `fit` with DistributedOptimizer, a loop with `optimizer.apply`
    # or with the tape, `train_on_batch`.
    way: str = "optimizer"
    eager: bool = False
    jit: bool = False
    steps_per_execution: int = 1
    epochs: int = 1
    apart: bool = False  # ranks begin with other weights and take those of rank 0
    saved: bool = False  # saved and loaded between two calls of `fit`
    shuffled: bool = False
    # The model.
    floats: str = "float64"
    style: str = "functional"
    lazy: bool = False  # built by the first step
    front: str = "dense"
    masked: str = ""  # "inner": a layer has used the mask; "loss": the loss has it
    norm: str = ""
    side: bool = False  # a second input
    outputs: int = 1
    nested: str = "dict"  # what several outputs are in
    penalty: str = ""
    dropout: bool = False
    placement: str = "row_wise"
    # What is minimised, and what is counted.
    losses: str = "mse"
    reduction: str = ""
    loss_weights: bool = False
    weights: str = ""
    metrics: str = ""
    weighted_metrics: bool = False
    # The optimizer.
    optimizer: str = "SGD"
    clip: str = ""
    ema: bool = False
    decay: bool = False
    accumulation: int = 1
    scaled: bool = False
    schedule: bool = False
    # Its reduction.
    shard: str = ""
    passes: int = 1
    averaged: bool = False
    op: str = "Average"
    groups: bool = False
    predivide: bool = False
    sparse_as_dense: bool = False
    # The data.
    data: str = "arrays"
    batch: int = 4  # rows of a rank
    steps: int = 3
    uneven: str = ""  # "rows": last batches are shorter; "batches": ranks have different numbers of them
    validation: bool = False

    @property
    def distribution(self) -> bool:
        """Under keras.distribution."""
        return self.way in DISTRIBUTION

    @property
    def fits(self) -> bool:
        """By `Model.fit`."""
        return self.way in ("distribution", "optimizer")

    @property
    def ids(self) -> bool:
        """The model's first layer looks ids up."""
        return self.front in ("embedding", "table")

    @property
    def cut(self) -> bool:
        """Ranks have parts of something, and save together."""
        return bool(self.shard) or self.front == "table"

    def loss_of(self, output: int) -> str:
        """The name of an output's loss."""
        names = self.losses.split("+")
        return names[output % len(names)]

    def numbers(self, *more: int) -> Any:
        """NumPy's random numbers of this case."""
        import numpy as np

        return np.random.default_rng([self.seed, self.number, *more])

    def __str__(self) -> str:
        return " ".join(f"{name}={value}" for name, value in self.changed().items())

    def changed(self) -> dict[str, Any]:
        """The fields that have not their default."""
        return {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)[2:]
            if getattr(self, field.name) != field.default
        }

    def replay(self, drawn: Case, ranks: int, nodes: str) -> str:
        """The command that runs this case, which `drawn` was shrunk to."""
        words = ["python -m tests.random", f"--seed {self.seed} --case {self.number} --ranks {ranks}"]
        words += [f"--nodes {nodes}"] * bool(nodes)
        names = [field.name for field in dataclasses.fields(self)]
        other = [name for name in names if getattr(self, name) != getattr(drawn, name)]
        words += ["--with " + " ".join(f"{name}={getattr(self, name)}" for name in other)] * bool(other)
        return " ".join(words)


def draw(seed: int, number: int, size: int, nodes: Sequence[int]) -> Case:
    """The case of this number for a job of `size` ranks."""
    from tests.random import exclusions

    chance = random.Random(f"{seed}:{number}")
    while True:
        case = _drawn(chance, seed, number, size)
        if not exclusions.of(case, size, nodes):
            return case


def altered(case: Case, settings: Sequence[str]) -> Case:
    """With other values, given as "name=value"."""
    values: dict[str, Any] = {}
    for setting in settings:
        name, _, text = setting.partition("=")
        kind = type(getattr(case, name))
        values[name] = text == "True" if kind is bool else kind(text)
    return dataclasses.replace(case, **values)


def _drawn(chance: random.Random, seed: int, number: int, size: int) -> Case:
    """Most options are rare, so that the others of a case are mostly as usual."""

    def some(*values: Any, share: float = 0.25) -> Any:
        """The first value, or with probability `share` one of the others."""
        return chance.choice(values[1:]) if chance.random() < share else values[0]

    def rarely() -> bool:
        return chance.random() < 0.12

    outputs = some(1, 2, 3, share=0.35)
    front = chance.choice(("dense", "dense", "conv", "lstm", "gru", "embedding", "embedding", "table"))
    placement = chance.choice(("row_wise", "column_wise", "table_wise", "auto", "default_device"))
    return Case(
        seed,
        number,
        way=chance.choice(
            ("distribution", "distribution", "optimizer", "optimizer", "tape", "apply", "batch", "distribution_batch")
        ),
        eager=rarely(),
        jit=chance.random() < 0.03,
        steps_per_execution=some(1, 2, 3, share=0.1),
        epochs=some(1, 2, share=0.3),
        apart=some(False, True),
        saved=rarely(),
        shuffled=rarely(),
        floats=some("float64", "float32", "mixed", share=0.3),
        style=chance.choice(("functional", "sequential", "subclassed")),
        lazy=some(False, True),
        front=front,
        masked=some("", "inner", "loss"),
        norm=some("", "syncbn", "syncbn", "bn", "layernorm", share=0.3),
        side=some(False, True),
        outputs=outputs,
        nested=chance.choice(("dict", "list")) if outputs > 1 else "dict",
        penalty=some("", "l2", "activity", "add_loss"),
        dropout=rarely(),
        placement=placement if front == "table" else "row_wise",
        losses="+".join(chance.sample(LOSSES, outputs)),
        reduction=some("", "sum", "mean_with_sample_weight"),
        loss_weights=some(False, True),
        weights=some("", "sample", "zeros", "class", share=0.35),
        metrics=some("", "mean", "counted", "function", "all", share=0.6),
        weighted_metrics=rarely(),
        optimizer=chance.choice((*ELEMENTWISE, "SGD", "Momentum", "Adam", chance.choice(WHOLE_TENSORS))),
        clip=some("", "clipnorm", "global_clipnorm", "clipvalue", share=0.3),
        ema=rarely(),
        decay=rarely(),
        accumulation=some(1, 2, 3, share=0.15),
        scaled=rarely(),
        schedule=rarely(),
        shard=some("", "1", "2", "3", "node", "world", share=0.35),
        passes=some(1, 2, 3, share=0.15),
        averaged=rarely(),
        op=some("Average", "Sum"),
        groups=rarely(),
        predivide=rarely(),
        sparse_as_dense=front == "embedding" and chance.random() < 0.5,
        data=some("arrays", "dataset", "PyDataset", "generator", share=0.5),
        batch=chance.randint(1, 5),
        steps=chance.randint(1, 4),
        uneven=some("", "rows", "batches", share=0.5),
        validation=rarely() or rarely(),
    )
