"""`keras.distribution.DataParallel`: the ranks read the same data at the same positions, or it is an error on all."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator

import keras
import numpy as np
import pytest
import tensorflow as tf

from smddp_tf.keras.data_parallel.same_data import Digests
from tests.support.distributed_keras import (
    BATCH,
    Batches,
    Recording,
    distributed,
    model,
    needs_generators,
    samples,
    weights,
)
from tests.support.early_variables import with_variables
from tests.support.refused import refused
from tests.variants import in_full

pytestmark = [pytest.mark.ranks("2"), pytest.mark.usefixtures("several_ranks")]

OTHER = "all ranks must read the same batches in the same order"
STEPS = 20


def light_model() -> keras.Model:
    """Without metrics: they are nothing that this file looks at."""
    return with_variables(model("sgd", metrics=()))


def test_arrays_that_differ_are_refused(rank, size):
    x, y = samples(40 * size)
    in_a_row = x.copy()
    in_a_row[-7] += rank
    others = [(x[rank::size], y[rank::size]), (np.random.default_rng(rank).permutation(x), y), (in_a_row, y)]
    with distributed():
        net = light_model()
        for mine, labels in others:
            for call in (net.fit, net.evaluate, lambda x, y, **options: net.predict(x, **options)):
                with pytest.raises(ValueError, match=r"checksum of x.* on rank 1 .*auto_shard_dataset=False"):
                    call(mine, labels, batch_size=BATCH, verbose=0)


def batches(
    rank: int, first: int = 0, last: int = STEPS, count: int = STEPS
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The same on all ranks, but the labels from batch `first` to `last` - 1."""
    for number in range(count):
        of_batch = np.random.default_rng([number, rank if first <= number < last else 99])
        yield np.full((8, 5), number, np.float32), of_batch.normal(size=(8, 1)).astype(np.float32)


SOURCES = {
    "generator of its own seed": lambda rank: {"x": batches(rank)},
    "from batch 13 on": lambda rank: {"x": batches(rank, 13)},
    "the last batch": lambda rank: {"x": batches(rank, STEPS - 1)},
    "fewer batches": lambda rank: {"x": batches(0, count=STEPS - rank)},
    "with steps_per_epoch": lambda rank: {"x": batches(rank, 3, 4), "steps_per_epoch": 4},
    "tf.data": lambda rank: {"x": tf.data.Dataset.from_tensor_slices(samples()).shuffle(70, seed=rank).batch(10)},
    "PyDataset": lambda rank: {"x": Batches(*(part + (rank == 1) for part in samples())), "shuffle": False},
}


def test_batches_that_differ_are_refused(rank):
    """One model, traced once."""
    needs_generators()
    with distributed():
        net = light_model()
        for name, source in SOURCES.items():
            refused(name, OTHER, lambda source=source: net.fit(**source(rank), verbose=0))


def test_evaluated_batches_that_differ_are_refused(rank):
    needs_generators()
    x, y = samples()
    with distributed():
        net = light_model()
        with pytest.raises(ValueError, match=OTHER):
            net.evaluate(batches(rank, STEPS - 1), verbose=0)
        with pytest.raises(ValueError, match=OTHER):
            net.fit(x, y, validation_data=batches(rank, 2, 3), validation_steps=4, verbose=0)


def test_an_order_that_is_not_fixed_is_fixed(rank, mpi):
    """`options.deterministic` False: the option is overridden, and every element is seen once."""
    seen: list[int] = []

    def slow(number):
        pause = np.random.default_rng(int(number) * 7 + rank).uniform(0, 0.004)
        time.sleep(pause)
        return number

    options = tf.data.Options()
    options.deterministic = False
    data = tf.data.Dataset.range(64).map(lambda i: tf.numpy_function(slow, [i], tf.int64), num_parallel_calls=4)
    data = data.map(lambda i: (tf.reshape(tf.cast(i, tf.float32), [1]),) * 2).batch(8).with_options(options)

    with distributed():
        Recording(lambda rows: seen.extend(rows.tolist())).fit(data, verbose=0)
    assert set().union(*mpi.allgather(seen)) == set(range(64))


def test_augmentations_of_each_rank_are_accepted(rank, monkeypatch):
    """With equal labels, and without any: a warning on rank 0, because samples may be others too."""
    monkeypatch.setattr(Digests, "_has_warned", False)
    _, y = samples()
    x = np.random.default_rng(rank).normal(size=(len(y), 5)).astype(np.float32)

    class WithoutLabels(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.dense = keras.layers.Dense(1)

        def call(self, x):
            self.add_loss(keras.ops.mean(self.dense(x) ** 2))
            return x

    with distributed(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        light_model().fit(tf.data.Dataset.from_tensor_slices((x, y)).batch(BATCH), verbose=0)
        Digests._has_warned = False
        unlabelled = WithoutLabels()
        unlabelled.compile("sgd")
        unlabelled.fit(tf.data.Dataset.from_tensor_slices(x).batch(BATCH), verbose=0)
    assert len([one for one in caught if "Inputs under keras.distribution" in str(one.message)]) == 2 * (rank == 0)


def test_ranks_stay_at_the_same_batch_of_a_generator(rank, mpi):
    """What is read ahead does not count, in validation, `evaluate`, `predict`, and one `fit` after another."""
    needs_generators()
    pause = np.random.default_rng(rank)

    def endless() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for number in range(10_000):
            time.sleep(pause.uniform(0, 0.003))
            half = np.full((4, 1), float(number), np.float32)
            yield np.concatenate([half, 1000 - half]), np.full((8, 1), float(number), np.float32)

    sums: list[float] = []

    class Loss(keras.losses.Loss):
        def call(self, y_true, y_pred):
            return keras.ops.abs(y_pred)

    class Infinite(keras.utils.PyDataset):
        num_batches = None

        def __getitem__(self, index):
            half = np.full((4, 1), float(index), np.float32)
            return np.concatenate([half, 1000 - half]), np.full((8, 1), float(index), np.float32)

    net = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, kernel_initializer="ones")])
    net.compile(keras.optimizers.SGD(0.0), Loss())
    zero = np.zeros((8, 1), np.float32)
    with distributed():
        for validation in (endless(), Infinite(workers=2)):
            options = {"validation_data": validation, "validation_steps": 3}
            sums += net.fit(zero, zero, batch_size=8, epochs=3, verbose=0, **options).history["val_loss"]
        data = endless()
        sums += [net.evaluate(data, steps=3, verbose=0) for _ in range(3)]
        sums += [net.fit(data, steps_per_epoch=3, epochs=2, verbose=0).history["loss"][-1] for _ in range(2)]
        predicted = [float(net.predict(data, steps=2, verbose=0)[0, 0]) for _ in range(3)]
    assert sums == pytest.approx([500.0] * len(sums))
    assert all(theirs == predicted for theirs in mpi.allgather(predicted))


@pytest.mark.parametrize("kind", ["arrays", "PyDataset"])
def test_the_order_follows_from_the_random_seed(mpi, kind):
    x, y = samples()
    data = {"x": x, "y": y, "batch_size": BATCH} if kind == "arrays" else {"x": Batches(x, y)}

    def trained(fits: int) -> Iterator[np.ndarray]:
        """The weights after each of the fits, which begin with the same ones."""
        net = light_model()  # sets the seed
        for _ in range(fits):
            net.set_weights([np.full_like(value, 0.1) for value in net.get_weights()])
            net.fit(**data, epochs=1, verbose=0)
            yield weights(net)

    with distributed():
        (once,), (again, next_order) = trained(1), trained(2)
    np.testing.assert_array_equal(once, again)
    assert np.abs(next_order - once).max() > 1e-6
    assert all(np.array_equal(theirs, once) for theirs in mpi.allgather(once))


def test_strings_and_what_is_no_plain_array(mpi):
    """Tensors of strings and ragged ones come in, and go out, in the order of the rows."""
    texts = tf.constant([f"{number} b" for number in range(7)])
    ragged = tf.ragged.constant([[number] * (1 + number % 3) for number in range(7)])
    y = np.arange(7.0)
    words = keras.layers.TextVectorization(max_tokens=8, output_sequence_length=3)
    words.adapt(texts)

    def net() -> keras.Model:
        keras.utils.set_random_seed(4)
        hidden = [words, keras.layers.Embedding(8, 3), keras.layers.Reshape((9,)), keras.layers.Dense(1)]
        made = keras.Sequential([keras.Input((), dtype="string"), *hidden])
        made.compile("sgd", "mse")
        return made

    class Echo(keras.Model):
        def call(self, inputs):
            return inputs

    def results() -> tuple[list[float], list[float], np.ndarray]:
        trained = net()
        history = trained.fit(texts, y, batch_size=4, epochs=2, shuffle=False, verbose=0).history["loss"]
        evaluated = trained.evaluate({"texts": texts}["texts"], y, batch_size=4, verbose=0)
        return history, [evaluated], trained.predict(np.array(["1 b", "b", "3 b", "x"], object), verbose=0)

    expected = results()
    with distributed():
        for mine, alone in zip(results(), expected):
            np.testing.assert_allclose(mine, alone, rtol=1e-5)
        echoed = Echo().predict({"texts": texts, "ragged": ragged}, batch_size=3, verbose=0)
    assert echoed["texts"].tolist() == texts.numpy().tolist()
    assert echoed["ragged"].to_list() == ragged.to_list()


@pytest.mark.parametrize("wrap", [keras.layers.Bidirectional, *in_full(lambda layer: layer)])
def test_a_stateful_layer_is_refused(rank, wrap):
    x, y = np.ones((16, 3, 2), np.float32), np.ones((16, 1), np.float32)

    def stateful() -> keras.Model:
        recurrent = wrap(keras.layers.GRU(2, stateful=True))
        inner = keras.Sequential([keras.Input(batch_shape=(8, 3, 2)), recurrent])
        net = keras.Sequential([keras.Input(batch_shape=(8, 3, 2)), inner, keras.layers.Dense(1)])
        net.compile("sgd", "mse")
        return net

    expected = stateful().predict(x, batch_size=8, verbose=0).shape
    with distributed():
        net = stateful()
        for method in (net.fit, net.evaluate):
            with pytest.raises(ValueError, match=rf"state is for 8 rows of a batch.*this is rank {rank}\)"):
                method(x, y, batch_size=8, verbose=0)
        assert net.predict(x, batch_size=8, verbose=0).shape == expected
    with distributed(auto_shard_dataset=False):
        stateful().fit(x, y, batch_size=8, verbose=0)


def test_clear_session_leaves_the_distribution(rank, mpi):
    x, y = samples()
    with distributed(auto_shard_dataset=False) as distribution:
        for clear in (keras.utils.clear_session, keras.backend.clear_session):
            clear()
            assert keras.distribution.distribution() is distribution
        net = light_model()
        net.fit(x[rank:], y[rank:], batch_size=BATCH, verbose=0)
        keras.distribution.set_distribution(None)
        assert keras.distribution.distribution() is None
    everybody = mpi.allgather(weights(net))
    assert all(np.array_equal(theirs, everybody[0]) for theirs in everybody)


def test_a_batch_is_counted_after_it_was_noted():
    """Or another thread finds the number of batches without the digest of the last one."""
    digests = Digests()
    batch = tf.TensorSpec([4, 5]), tf.TensorSpec([4, 1])
    graph = tf.function(digests.note).get_concrete_function(tf.TensorSpec([], tf.int64), batch).graph
    operations = graph.get_operations()
    waits_for = [operation for operation in operations if operation.type == "AssignVariableOp"]
    assert len(waits_for) == 1
    for operation in waits_for:
        waits_for += [other for other in operation.control_inputs if other not in waits_for]
        waits_for += [each.op for each in operation.inputs if each.op not in waits_for]
    assert "ResourceScatterNdUpdate" in {operation.type for operation in waits_for}
