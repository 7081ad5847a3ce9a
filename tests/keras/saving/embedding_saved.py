"""Trains tables on the ranks there are and saves them, or goes on from what other ranks have saved.

    embedding_saved.py train FOLDER
    embedding_saved.py load FOLDER

`train` saves in three ways after two steps, makes two more and writes what has come out; `load` makes those from each
file and compares.
"""

from __future__ import annotations

import sys
from pathlib import Path

import keras
import numpy as np

import smddp_tf.keras as hvk
from tests.support.embedding_models import cut_model, data_of, give_first_tables, part, relative_distance, tables_of

BATCH = 12  # of all ranks together
PLACEMENTS = ("row_wise", "column_wise", "table_wise")


def fit(model: keras.Model, seed: int, callbacks: list = []) -> None:  # noqa: B006
    data = part(data_of(2 * BATCH, seed), hvk.rank(), hvk.size())
    model.fit(*data, batch_size=BATCH // hvk.size(), shuffle=False, verbose=0, callbacks=callbacks)


def compiled(model: keras.Model) -> keras.Model:
    model.compile(hvk.DistributedOptimizer(keras.optimizers.Adam(0.02)), "mse")
    return model


def train(folder: Path) -> None:
    model = compiled(give_first_tables(cut_model(PLACEMENTS)))
    checkpoint = keras.callbacks.ModelCheckpoint(folder / "checkpoint.keras", save_best_only=True, monitor="loss")
    best = hvk.callbacks.BestModelCheckpoint("loss", filepath=folder / "best.keras")
    fit(model, 1, [hvk.callbacks.on_rank_zero(checkpoint), best])
    model.save(folder / "saved.keras")
    model.save_weights(folder / "saved.weights.h5")
    np.savez(folder / f"before-{hvk.rank()}.npz", *tables_of(model))
    fit(model, 2)
    np.savez(folder / f"after-{hvk.rank()}.npz", *tables_of(model))
    files = sorted(path.name for path in folder.iterdir() if path.suffix != ".npz")
    assert files == ["best.keras", "checkpoint.keras", "saved.keras", "saved.weights.h5"], files


def load(folder: Path) -> None:
    expected = {when: list(np.load(folder / f"{when}-0.npz").values()) for when in ("before", "after")}
    for name in ("saved.keras", "best.keras", "checkpoint.keras")[: 3 if hvk.size() == 1 else 1]:
        model = hvk.load_model(folder / name)
        fit(model, 2)
        check(model, expected["after"])
    weights = cut_model(("column_wise", "table_wise", "row_wise"))
    weights.load_weights(folder / "saved.weights.h5")
    check(weights, expected["before"])
    check(keras.models.load_model(folder / "saved.keras", compile=False), expected["before"])


def check(model: keras.Model, expected: list[np.ndarray]) -> None:
    tables = tables_of(model)
    if hvk.rank() == 0:
        distance = relative_distance(tables, expected)
        assert distance < 1e-6, distance


if __name__ == "__main__":
    hvk.init()
    {"train": train, "load": load}[sys.argv[1]](Path(sys.argv[2]))
    print(f"rank {hvk.rank()} of {hvk.size()}: as it must be")
