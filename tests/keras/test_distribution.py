"""`keras.distribution.DataParallel`: `fit`, `evaluate` and `predict` on all ranks give what one process gives."""

from __future__ import annotations

import inspect
import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf

import smddp_tf.keras as hvk
from smddp_tf.keras.roles import running
from smddp_tf.keras.roles.current_distribution import alone
from smddp_tf.keras.roles.wrapping import is_wrapped
from tests.support.distributed_keras import (
    BATCH,
    FEATURES,
    OPTIMIZERS,
    ROWS,
    VALIDATION,
    Batches,
    Recording,
    arguments,
    distributed,
    model,
    samples,
    weights,
)
from tests.variants import in_full

pytestmark = pytest.mark.ranks("2")

CASES = [
    *[
        ("arrays", "sgd"),
        ("tf.data", "adamw"),
        ("PyDataset", "ema"),
        ("generator", "clipnorm"),
        ("arrays", "accumulation"),
    ],
    *in_full(*itertools.product(("arrays", "tf.data", "PyDataset", "generator"), OPTIMIZERS)),
]


def same_on_all(mpi, values: np.ndarray) -> bool:
    return all(np.array_equal(theirs, values) for theirs in mpi.allgather(values))


@pytest.mark.parametrize(("kind", "name"), CASES)
def test_fit_is_that_of_one_process(hvd, mpi, kind, name):
    x, y = samples()
    options = {"epochs": 4, "verbose": 0, "shuffle": False, "validation_data": (x[:VALIDATION], y[:VALIDATION])}
    alone = model(OPTIMIZERS[name]())
    expected = alone.fit(**arguments(kind, x, y), **options).history
    with distributed():
        together = model(OPTIMIZERS[name]())
        history = together.fit(**arguments(kind, x, y), **options).history
    np.testing.assert_allclose(weights(together), weights(alone), rtol=1e-6, atol=1e-6)
    assert set(history) == set(expected)
    for metric, values in expected.items():
        np.testing.assert_allclose(history[metric], values, rtol=1e-6, err_msg=metric)
    assert same_on_all(mpi, weights(together))


@pytest.mark.parametrize("kind", ["arrays", "tf.data", "PyDataset"])
@pytest.mark.parametrize("rows", [70, 2])
def test_evaluate_and_predict_are_those_of_one_process(hvd, mpi, kind, rows):
    x, y = samples(rows)
    alone = model("sgd")
    expected = alone.evaluate(**arguments(kind, x, y), return_dict=True, verbose=0)
    with distributed():
        together = model("sgd")
        results = together.evaluate(**arguments(kind, x, y), return_dict=True, verbose=0)
        data = arguments(kind, x, y)
        predicted = together.predict(**{name: data[name] for name in ("x", "batch_size") if name in data}, verbose=0)
    assert results == pytest.approx(expected, rel=1e-6)
    np.testing.assert_allclose(predicted, alone.predict(x, verbose=0), rtol=1e-6)
    assert same_on_all(mpi, predicted)


class Centred(keras.layers.Layer):
    """A layer with states of its own: a moving mean, and a counter."""

    def build(self, shape):
        self.mean = self.add_weight(shape=(shape[-1],), initializer="zeros", trainable=False)
        self.calls = self.add_weight(shape=(), dtype="int32", initializer="zeros", trainable=False)

    def call(self, inputs, training=False):
        if training:
            self.mean.assign(0.5 * self.mean + 0.5 * keras.ops.mean(inputs, axis=0))
            self.calls.assign_add(1)
        return inputs - self.mean


def with_statistics():
    """A model, and a part of it that has no optimizer."""
    keras.utils.set_random_seed(5)
    inputs = keras.Input((FEATURES,))
    normalized = keras.layers.BatchNormalization(momentum=0.5)(Centred()(inputs))
    made = keras.Model(inputs, keras.layers.Dense(1)(normalized))
    made.compile(keras.optimizers.SGD(0.01), "mse")
    return made, keras.Model(inputs, normalized)


@pytest.mark.parametrize("way", ["fit", "train_on_batch"])
def test_all_ranks_compute_with_the_same_statistics(hvd, rank, mpi, way):
    """Steps change moving states by the rank's own rows; `evaluate`, `predict` and validation use those of rank 0."""
    x, y = samples(ROWS)
    with distributed():
        made, part = with_statistics()
        if way == "fit":
            validation = {"validation_data": (x[:VALIDATION], y[:VALIDATION])}
            history = made.fit(x + 1.0, y, batch_size=BATCH, epochs=2, verbose=0, **validation).history
        else:
            made.train_on_batch(x[rank::2] + 1.0, y[rank::2])
            assert same_on_all(mpi, part.predict(x, verbose=0)), "a part of the model has other statistics"
        predicted = made.predict(tf.data.Dataset.from_tensor_slices(x).batch(BATCH), verbose=0)
        assert same_on_all(mpi, weights(made)), "non-trainable variables differ"
        np.testing.assert_allclose(predicted, made(x), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(made.predict(x, verbose=0), made(x), rtol=1e-5, atol=1e-6)
        assert made.evaluate(x, y, verbose=0) == pytest.approx(float(np.mean((made(x) - y) ** 2)), rel=1e-5)
    if way == "fit":
        expected = np.mean((made(x[:VALIDATION]) - y[:VALIDATION]) ** 2)
        assert history["val_loss"][-1] == pytest.approx(float(expected), rel=1e-5)


def test_a_callback_that_writes_files_may_use_the_model(hvd, rank, tmp_path):
    """It runs on rank 0 only, which evaluates and predicts alone, on all of the data; twice, with the same callback."""
    x, y = samples(32)
    seen = []

    class Best(keras.callbacks.ModelCheckpoint):
        def on_epoch_end(self, epoch, logs=None):
            predicted = self.model.predict(x, verbose=0)
            loss = self.model.evaluate(x, y, verbose=0, return_dict=True)["loss"]
            assert loss == pytest.approx(float(np.mean((predicted - y) ** 2)), rel=1e-5)
            seen.append(loss)
            super().on_epoch_end(epoch, {**(logs or {}), "extra": loss})

    class Logger(keras.callbacks.CSVLogger):
        def on_train_batch_end(self, batch, logs=None):
            seen.append(len(self.model.predict(x[:3], verbose=0)))

    best = Best(str(tmp_path / f"{rank}.keras"), monitor="extra", mode="min", save_best_only=True)
    with distributed():
        made, _ = with_statistics()
        for _ in range(2):
            made.fit(x, y, batch_size=BATCH, verbose=0, callbacks=[best, Logger(str(tmp_path / f"{rank}.csv"))])
        assert len(seen) == (6 if rank == 0 else 0)
        assert (tmp_path / f"{rank}.keras").exists() == (rank == 0)
        assert made.evaluate(x, y, verbose=0) > 0.0


def test_what_needs_all_ranks_is_an_error_where_one_runs_alone(hvd, size):
    x, y = samples(32)
    with distributed():
        made, _ = with_statistics()
        made.fit(x, y, batch_size=BATCH, verbose=0)
        with alone():
            for call in (lambda: made.fit(x, y, verbose=0), lambda: hvk.evaluate(made, x, y, verbose=0)):
                with pytest.raises(RuntimeError, match="needs all ranks. Received: a call in a callback"):
                    call()


def test_several_outputs_are_predicted_in_order(hvd):
    inputs = keras.Input((FEATURES,))
    two = keras.Model(inputs, {"first": inputs[:, :1], "sum": keras.ops.sum(inputs, axis=1)})
    x, _ = samples()
    with distributed():
        predicted = two.predict(x, batch_size=BATCH, verbose=0)
    np.testing.assert_array_equal(predicted["first"], x[:, :1])
    np.testing.assert_allclose(predicted["sum"], x.sum(axis=1), rtol=1e-5, atol=1e-6)


def test_rows_of_a_table_are_summed_over_the_ranks(hvd):
    words = np.random.default_rng(3).integers(0, 11, (ROWS, 4))
    y = words[:, :1].astype(np.float32)

    def trained() -> np.ndarray:
        keras.utils.set_random_seed(5)
        table = keras.Sequential(
            [keras.layers.Embedding(11, 3), keras.layers.GlobalAveragePooling1D(), keras.layers.Dense(1)]
        )
        table.compile(keras.optimizers.SGD(0.1), "mse")
        table.fit(words, y, batch_size=BATCH, epochs=3, shuffle=False, verbose=0)
        return weights(table)

    expected = trained()
    with distributed():
        np.testing.assert_allclose(trained(), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("options", [{"steps_per_execution": 3}, *in_full({"run_eagerly": True})])
def test_other_ways_to_run_steps(hvd, options):
    x, y = samples(6 * BATCH - 6)  # older versions of Keras leave out what does not fill a call
    alone = model("adam", **options)
    alone.fit(x, y, batch_size=BATCH, epochs=2, shuffle=False, verbose=0)
    with distributed():
        together = model("adam", **options)
        together.fit(x, y, batch_size=BATCH, epochs=2, shuffle=False, verbose=0)
    np.testing.assert_allclose(weights(together), weights(alone), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("weighted_by", ["class_weight", *in_full("sample_weight")])
def test_weights_of_classes_and_samples(hvd, weighted_by):
    x, y = samples()
    by_sample = np.linspace(0.5, 2.0, len(x), dtype=np.float32)
    options = {"batch_size": BATCH, "epochs": 2, "shuffle": False, "verbose": 0, "validation_split": 0.2}
    options |= {weighted_by: {"class_weight": {0: 0.4, 1: 3.0}, "sample_weight": by_sample}[weighted_by]}
    alone = model("adam")
    expected = alone.fit(x, y, **options).history
    with distributed():
        together = model("adam")
        history = together.fit(x, y, **options).history
    np.testing.assert_allclose(weights(together), weights(alone), rtol=1e-6, atol=1e-6)
    assert {name: pytest.approx(values, rel=1e-6) for name, values in expected.items()} == history


def test_data_that_are_sharded_already(hvd, rank, size):
    """Ranks have parts of different lengths, which they bring themselves; batches of the same step are one."""
    if "auto_shard_dataset" not in inspect.signature(keras.distribution.DataParallel).parameters:
        pytest.skip("in this Keras a DataParallel always shards")
    x, y = samples()
    per_rank = BATCH // 4
    parts = [slice(r * len(x) // (size + 1), (r + 1) * len(x) // (size + 1) - r) for r in range(size)]

    def step(number: int, of_rank: slice) -> tuple[np.ndarray, np.ndarray]:
        rows = slice(number * per_rank, (number + 1) * per_rank)
        return x[of_rank][rows], y[of_rank][rows]

    alone = model("adamw")
    for number in range(-(-max(len(x[part]) for part in parts) // per_rank)):
        of_ranks = [step(number, part) for part in parts]
        alone.train_on_batch(*(np.concatenate(arrays) for arrays in zip(*of_ranks)))
    with distributed(auto_shard_dataset=False):
        together = model("adamw")
        mine = tf.data.Dataset.from_tensor_slices((x[parts[rank]], y[parts[rank]])).batch(per_rank)
        together.fit(mine, verbose=0)
    np.testing.assert_allclose(weights(together), weights(alone), rtol=1e-6, atol=1e-6)


def test_sparse_and_ragged_inputs(hvd):
    x, y = samples()
    sparse = tf.sparse.from_dense(tf.where(x > 0.3, x, 0.0))
    ragged = tf.RaggedTensor.from_tensor(tf.where(x > 0, 1, 2), lengths=1 + np.arange(len(x)) % FEATURES)

    def trained(inputs: keras.Input, hidden: list, data: object) -> np.ndarray:
        keras.utils.set_random_seed(5)
        net = keras.Sequential([inputs, *hidden, keras.layers.Dense(1)])
        net.compile("sgd", "mse")
        net.fit(tf.data.Dataset.from_tensor_slices((data, y)).batch(BATCH), epochs=2, verbose=0)
        return weights(net)

    for inputs, hidden, data in [
        (lambda: keras.Input((FEATURES,), sparse=True), list, sparse),
        (lambda: keras.Input((None,), dtype="int32"), lambda: [keras.layers.CategoryEncoding(3, "count")], ragged),
    ]:
        data = data if data is sparse else ragged.to_tensor()
        expected = trained(inputs(), hidden(), data)
        with distributed():
            np.testing.assert_allclose(trained(inputs(), hidden(), data), expected, rtol=1e-5, atol=1e-6)


def test_all_ranks_shuffle_alike(hvd, mpi):
    """With shuffling, the ranks still take parts of the same batches; and each epoch has another order."""
    seen = [ids for kind in ("arrays", "PyDataset") for ids in _ids_of_epochs(kind)]
    together = [np.concatenate(of_epoch) for of_epoch in zip(*mpi.allgather(seen))]
    assert all(sorted(ids) == list(range(ROWS)) for ids in together)
    assert not np.array_equal(together[0], together[1])
    assert not np.array_equal(together[2], together[3])


def _ids_of_epochs(kind: str) -> list[np.ndarray]:
    """The numbers of the samples that this rank trains on, epoch by epoch."""
    ids = np.arange(ROWS, dtype=np.float32)[:, None]
    seen: list[list[np.ndarray]] = []

    def record(rows: np.ndarray) -> None:
        active = running.here.active
        seen[-1].append(rows if active is None else rows[: int(active.flag)])

    with distributed():
        begin = keras.callbacks.LambdaCallback(on_epoch_begin=lambda epoch, logs: seen.append([]))
        Recording(record).fit(**arguments(kind, ids, ids), epochs=2, verbose=0, callbacks=[begin])
    return [np.concatenate(parts) for parts in seen]


def test_only_under_a_distribution(hvd, rank, mpi):
    """After `set_distribution(None)` a model trains alone, on what this rank gives it."""
    x, y = samples()
    with distributed():
        net = model("sgd")
        net.fit(x, y, batch_size=BATCH, verbose=0)
        assert is_wrapped(net.optimizer)
    net.fit(x[rank:], y[rank:], batch_size=BATCH, shuffle=False, verbose=0)
    assert not is_wrapped(net.optimizer)
    everybody = mpi.allgather(weights(net))
    assert len({each.tobytes() for each in everybody}) == len(everybody)


def test_steps_of_ones_own(hvd, rank, size, mpi):
    """`train_on_batch`, a loop with `optimizer.apply`, and a wrapped optimizer reduce once."""
    x, y = samples()
    share = slice(rank * 4, rank * 4 + 4)
    whole = slice(0, size * 4)
    alone = model(keras.optimizers.SGD(0.5))
    alone.train_on_batch(x[whole], y[whole])
    with distributed():
        by_batch, by_loop, wrapped = (model(keras.optimizers.SGD(0.5)) for _ in range(3))
        by_batch.train_on_batch(x[share], y[share])
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(keras.losses.binary_crossentropy(y[share], by_loop(x[share])))
            loss += tf.add_n(by_loop.losses)
        by_loop.optimizer.apply(tape.gradient(loss, by_loop.trainable_weights), by_loop.trainable_weights)
        wrapped.compile(hvk.DistributedOptimizer(keras.optimizers.SGD(0.5)), "binary_crossentropy")
        wrapped.train_on_batch(x[share], y[share])
    for each in (by_batch, by_loop, wrapped):
        np.testing.assert_allclose(weights(each), weights(alone), rtol=1e-6, atol=1e-6)
        assert same_on_all(mpi, weights(each))


def test_the_length_of_a_dataset_stays_known(hvd):
    x, y = samples()
    seen = []
    note = keras.callbacks.LambdaCallback(on_train_begin=lambda logs: seen.append(note.params["steps"]))
    with distributed():
        net = model("sgd")
        for data in (arguments("tf.data", x, y), {"x": Batches(x, y)}):
            net.fit(**data, verbose=0, callbacks=[note])
    assert seen == [5, 5]


class OfItsOwnStep(keras.Model):
    """A model without `call`, whose step applies two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = keras.layers.Dense(6, activation="tanh")
        self.head = keras.layers.Dense(1, activation="sigmoid")

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((self.head(self.hidden(x)) - y) ** 2)
        variables = self.trainable_variables
        self.optimizer.apply(tape.gradient(loss, variables), variables)
        return {"loss": loss}


class Subclassed(OfItsOwnStep):
    """A model whose layers are built by its first call."""

    train_step = keras.Model.train_step

    def call(self, inputs):
        return self.head(self.hidden(inputs))


class BuiltInPart(Subclassed):
    """One that says it is built, and has layers that are not."""

    def build(self, shape):
        self.hidden.build(shape)
        self.built = True


def without_input() -> keras.Model:
    return keras.Sequential([keras.layers.Dense(6, activation="tanh"), keras.layers.Dense(1, activation="sigmoid")])


def built_in_part() -> keras.Model:
    net = BuiltInPart()
    net.build((None, FEATURES))
    return net


BUILT_BY_A_STEP = [
    (Subclassed, "arrays", False),
    (OfItsOwnStep, "generator", False),
    (built_in_part, "arrays", False),
    (without_input, "arrays", True),
    *in_full(
        *itertools.product((Subclassed, OfItsOwnStep, built_in_part, without_input), ("arrays", "generator"), (0, 1))
    ),
]


@pytest.mark.parametrize(("made", "kind", "eagerly"), BUILT_BY_A_STEP)
def test_the_first_step_of_a_model_that_it_builds_has_the_weights_of_rank_0(hvd, rank, mpi, made, kind, eagerly):
    """The ranks would begin with different weights."""
    x, y = samples(BATCH * 3)

    def trained(seed: int) -> keras.Model:
        keras.utils.set_random_seed(seed)
        net = made()
        net.compile(keras.optimizers.SGD(0.5, momentum=0.9), "mse", run_eagerly=bool(eagerly))
        net.fit(**arguments(kind, x, y), shuffle=False, epochs=2, verbose=0)
        return net

    alone = trained(5)
    with distributed():
        together = trained(5 + rank)
    np.testing.assert_allclose(weights(together), weights(alone), rtol=1e-5, atol=1e-6)
    assert same_on_all(mpi, weights(together))
