"""smddp_tf.data.shard over real datasets: what each rank sees, epoch after epoch, and training through `fit`."""

from __future__ import annotations

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf

import smddp_tf.keras as hvk
from tests.parallel.keras_training import dense_model, distance, flat_weights

ITEMS = 22


def of_unknown_length(count: int = ITEMS) -> tf.data.Dataset:
    return tf.data.Dataset.range(count).filter(lambda item: item >= 0)


def numbers(dataset) -> list[int]:
    return [int(item) for item in dataset.as_numpy_iterator()]


def dealt(mpi, mine: list[int]) -> list[int]:
    """What all ranks got, one item of each in turn."""
    everybody = mpi.allgather(mine)
    return [part[i] for i in range(max(map(len, everybody))) for part in everybody if i < len(part)]


def padded(size: int, count: int = ITEMS) -> list[int]:
    return [*range(count), *range(-count % size)]


# --- tf.data ---


def test_known_length(hvd, size, mpi):
    dataset = tf.data.Dataset.range(ITEMS)
    part = hvd.data.shard(dataset)
    assert dealt(mpi, numbers(part)) == padded(size)
    assert int(part.cardinality()) == -(-ITEMS // size)
    assert dealt(mpi, numbers(hvd.data.shard(dataset, even="drop"))) == list(range(ITEMS - ITEMS % size))
    assert dealt(mpi, numbers(hvd.data.shard(dataset, even=None))) == list(range(ITEMS))
    assert numbers(hvd.data.shard(tf.data.Dataset.range(0))) == []
    assert len(numbers(hvd.data.shard(tf.data.Dataset.range(1)))) == 1


@pytest.mark.parametrize("count", [ITEMS, ITEMS + 1, ITEMS + 2])
def test_unknown_length(hvd, size, mpi, count):
    """To pad, the last group begins anew."""
    assert dealt(mpi, numbers(hvd.data.shard(of_unknown_length(count), even=None))) == list(range(count))
    kept = dealt(mpi, numbers(hvd.data.shard(of_unknown_length(count), even="drop")))
    assert kept == list(range(count - count % size))
    filled = dealt(mpi, numbers(hvd.data.shard(of_unknown_length(count))))
    rest = list(range(count - count % size, count))
    assert filled == [*kept, *(rest * size)[: size if rest else 0]]


def test_elements_of_any_structure(hvd, rank, size):
    """Elements that differ in shape go through a group as they are."""
    dataset = tf.data.Dataset.range(2 * size).filter(lambda _: True)
    dataset = dataset.map(lambda n: {"row": tf.range(n), "pair": (n, tf.strings.as_string(n))})
    for dataset_of_pairs in (dataset, dataset.apply(tf.data.experimental.assert_cardinality(2 * size))):
        elements = list(hvd.data.shard(dataset_of_pairs).as_numpy_iterator())
        assert [len(element["row"]) for element in elements] == [rank, rank + size]
        assert [element["pair"][1] for element in elements] == [str(rank).encode(), str(rank + size).encode()]


def test_without_end(hvd, rank, size):
    part = hvd.data.shard(tf.data.Dataset.range(3).repeat())
    assert numbers(part.take(5)) == [(rank + i * size) % 3 for i in range(5)]


@pytest.mark.parametrize("known", [True, False], ids=["known length", "unknown length"])
@pytest.mark.parametrize("even", ["pad", "drop", None])
def test_one_permutation_for_all_ranks(hvd, rank, size, mpi, known, even):
    """Another one in each epoch; the global seed, other on every rank, and an epoch cut short do not matter."""
    tf.random.set_seed(100 + rank)
    dataset = tf.data.Dataset.range(ITEMS) if known else of_unknown_length()
    part = hvd.data.shard(dataset, shuffle=True if known else ITEMS, even=even)
    orders = []
    for epoch in range(3):
        numbers(part.take(2 + epoch))
        orders.append(dealt(mpi, numbers(part)))
    for order in orders:
        missing, more = set(range(ITEMS)) - set(order), len(order) - len(set(order))
        assert len(missing) == (ITEMS % size if even == "drop" else 0)
        assert more == (-ITEMS % size if even == "pad" else 0)
    assert len({tuple(order) for order in orders}) == 3


def looks(part, how: str) -> None:
    """What one rank does with its part besides."""
    if how == "one element":
        next(iter(part))
    elif how == "some":
        numbers(part.batch(2).take(2).unbatch())
    else:
        numbers(part)


@pytest.mark.parametrize("even", ["pad", "drop", None])
@pytest.mark.parametrize("how", ["one element", "some", "all"])
def test_every_epoch_adds_up_whatever_one_rank_looks_at(hvd, rank, size, mpi, how, even):
    part = hvd.data.shard(tf.data.Dataset.range(ITEMS), shuffle=True, even=even)
    orders = []
    for epoch in range(3):
        if rank == epoch % size:
            looks(part, how)
        orders.append(dealt(mpi, numbers(part)))
    for order in orders:
        assert len(set(range(ITEMS)) - set(order)) == (ITEMS % size if even == "drop" else 0)
        assert len(order) - len(set(order)) == (-ITEMS % size if even == "pad" else 0)
    assert len({tuple(order) for order in orders}) == 3


def test_passes_inside_of_a_pipeline_add_up(hvd, rank, size, mpi):
    part = hvd.data.shard(tf.data.Dataset.range(2 * size), shuffle=True)
    if rank == 0:
        next(iter(part))
    mine = numbers(part.repeat(3).prefetch(2))
    for epoch in range(3):
        assert sorted(dealt(mpi, mine[2 * epoch : 2 * epoch + 2])) == list(range(2 * size))


def test_set_epoch_deals_out_anew(hvd, rank, size, mpi):
    """The order of all ranks together is that of one process with the same seed, for each number."""
    part = hvd.data.shard(tf.data.Dataset.range(ITEMS), shuffle=ITEMS, seed=4, even=None)
    alone = hvd.data.shard(tf.data.Dataset.range(ITEMS), shuffle=ITEMS, seed=4, rank=0, size=1)
    orders = []
    for epoch in (0, 1, 5, 1):
        looks(part, "all" if rank == 0 else "some")
        hvd.data.set_epoch(part.batch(3).prefetch(1), epoch)
        hvd.data.set_epoch(alone, epoch)
        orders.append(numbers(alone))
        assert dealt(mpi, numbers(part)) == orders[-1]
    assert orders[1] == orders[3]
    assert len({tuple(order) for order in orders}) == 3
    for wrong in (tf.data.Dataset.range(3), hvd.data.shard(tf.data.Dataset.range(3)), np.arange(3)):
        with pytest.raises(ValueError, match="`data` must be what hvd.data.shard"):
            hvd.data.set_epoch(wrong, 1)


def test_a_saved_iterator_goes_on(hvd, rank, size, tmp_path):
    """tf.train.Checkpoint keeps the order of the pass that it is in."""
    part = hvd.data.shard(tf.data.Dataset.range(ITEMS), shuffle=True).batch(2)
    iterator = iter(part)
    next(iterator)
    path = tf.train.Checkpoint(iterator=iterator).write(str(tmp_path / "iterator"))
    rest = [batch.numpy().tolist() for batch in iterator]
    again = iter(part)
    tf.train.Checkpoint(iterator=again).read(path)
    assert [batch.numpy().tolist() for batch in again] == rest


def test_a_seed_repeats_the_order(hvd, rank, mpi):
    first, second, other = (
        numbers(hvd.data.shard(tf.data.Dataset.range(ITEMS), shuffle=True, seed=seed)) for seed in (1, 1, 2)
    )
    assert first == second != other


def test_the_global_seed_is_put_back(hvd):
    tf.random.set_seed(5)
    expected = tf.random.uniform([3]).numpy()
    tf.random.set_seed(5)
    hvd.data.shard(tf.data.Dataset.range(4), shuffle=True)
    np.testing.assert_array_equal(tf.random.uniform([3]).numpy(), expected)


# --- arrays and PyDatasets ---


class Batches(keras.utils.PyDataset):
    """ITEMS batches of two rows; the number of the batch is in its targets."""

    def __init__(self, **settings):
        super().__init__(**settings)
        self.epochs = 0

    def __len__(self):
        return ITEMS

    def __getitem__(self, index):
        return np.full((2, 6), 0.1 * index, np.float32), np.full((2, 3), float(index), np.float32)

    def on_epoch_end(self):
        self.epochs += 1


class Probe(keras.Sequential):
    """A model that remembers the first target of each batch it trains on."""

    def train_step(self, data):
        self.add_seen(data[1][0, 0])
        return super().train_step(data)

    def add_seen(self, number):
        tf.py_function(lambda value: self.seen[-1].append(int(value)), [number], [])


class Epochs(keras.callbacks.Callback):
    def on_train_begin(self, logs=None):
        object.__setattr__(self.model, "seen", [])

    def on_epoch_begin(self, epoch, logs=None):
        self.model.seen.append([])


def seen_in_fit(
    dataset, *callbacks, epochs: int = 3, wrap=hvk.DistributedOptimizer, probe=Probe, **options
) -> list[list[int]]:
    keras.utils.set_random_seed(7)
    model = probe([keras.Input((6,)), keras.layers.Dense(3)])
    model.compile(wrap(keras.optimizers.SGD(0.0)), loss="mse")
    model.fit(dataset, epochs=epochs, verbose=0, shuffle=False, callbacks=[Epochs(), *callbacks], **options)
    return model.seen


@pytest.mark.parametrize("workers", [1, 3], ids=["one worker", "three workers"])
def test_py_dataset_through_fit(hvd, rank, size, mpi, workers):
    source = Batches(workers=workers, max_queue_size=4)
    part = hvd.data.shard(source, shuffle=True, seed=5)
    assert (part.workers, part.use_multiprocessing, part.max_queue_size) == (workers, False, 4)
    orders = [dealt(mpi, epoch) for epoch in seen_in_fit(part)]
    assert source.epochs >= 3
    assert all(len(order) == len(padded(size)) and set(order) == set(range(ITEMS)) for order in orders)
    assert len({tuple(order) for order in orders}) == 3
    part.epoch = 1
    assert dealt(mpi, seen_in_fit(part, epochs=1)[0]) == orders[1]


def test_py_dataset_in_order(hvd, size, mpi):
    orders = [dealt(mpi, epoch) for epoch in seen_in_fit(hvd.data.shard(Batches(), even="drop"), epochs=2)]
    assert orders == [list(range(ITEMS - ITEMS % size))] * 2


def test_py_dataset_without_end(hvd, rank, size):
    class Endless(Batches):
        __len__ = None
        num_batches = None

    part = hvd.data.shard(Endless())
    assert part.num_batches is None
    assert [int(part[i][1][0, 0]) for i in range(3)] == [rank, rank + size, rank + 2 * size]
    with pytest.raises(ValueError, match="no order to shuffle"):
        hvd.data.shard(Endless(), shuffle=True)


def test_batches_of_arrays_through_fit(hvd, size, mpi):
    x = np.zeros((ITEMS, 6), np.float32)
    y = np.repeat(np.arange(ITEMS, dtype=np.float32)[:, np.newaxis], 3, axis=1)
    part = hvd.data.shard((x, y), batch_size=1, shuffle=True, even=None if ITEMS % size == 0 else "pad")
    orders = [dealt(mpi, epoch) for epoch in seen_in_fit(part)]
    assert all(set(order) == set(range(ITEMS)) for order in orders)
    assert len({tuple(order) for order in orders}) == 3


class LooksInFit(keras.callbacks.Callback):
    """On one rank only, in the middle of each epoch and at its end: goes through the training data."""

    def __init__(self, part):
        super().__init__()
        self.part = part

    def look(self):
        keras.Sequential([keras.Input((6,)), keras.layers.Flatten()]).predict(self.part, verbose=0)

    def on_train_batch_end(self, batch, logs=None):
        if batch == 2:
            self.look()

    def on_epoch_end(self, epoch, logs=None):
        self.look()


def all_items() -> tuple[np.ndarray, np.ndarray]:
    x = np.zeros((ITEMS, 6), np.float32)
    return x, np.repeat(np.arange(ITEMS, dtype=np.float32)[:, np.newaxis], 3, axis=1)


PARTS = {
    "tf.data": lambda data, **who: data.shard(tf.data.Dataset.from_tensor_slices(all_items()), **who).batch(1),
    "arrays": lambda data, **who: data.shard(all_items(), batch_size=1, **who),
    "PyDataset": lambda data, **who: data.shard(Batches(), **who),
}


@functools.cache
def orders_of_one_process(data, kind):
    """The order of the items in each epoch, over a fit of 3 epochs and one of 2."""
    alone = PARTS[kind](data, shuffle=True, seed=5, rank=0, size=1)
    return [order for epochs in (3, 2) for order in seen_in_fit(alone, epochs=epochs, wrap=lambda plain: plain)]


@pytest.mark.parametrize("kind", PARTS)
def test_epochs_of_fit_add_up_whatever_one_rank_looks_at(hvd, rank, size, mpi, kind):
    """Before, in and after a `fit`; the orders are those that one process has, epoch by epoch, over two fits."""
    if ITEMS % size:
        pytest.skip("more ranks prove nothing new")
    part = PARTS[kind](hvd.data, shuffle=True, seed=5, even=None)
    expected = orders_of_one_process(hvd.data, kind)
    other_rank = rank == size - 1 and size > 1
    callbacks = [LooksInFit(part)] if other_rank else []
    orders = []
    for epochs in (3, 2):
        if other_rank:
            LooksInFit(part).look()
        orders += [dealt(mpi, epoch) for epoch in seen_in_fit(part, *callbacks, epochs=epochs)]
    assert orders == expected
    assert all(sorted(order) == list(range(ITEMS)) for order in orders)


class TapeProbe(Probe):
    """It reduces in a step of its own, so its optimizer is a plain one."""

    def train_step(self, data):
        x, y = data
        self.add_seen(y[0, 0])
        with hvk.DistributedGradientTape(tf.GradientTape()) as tape:
            loss = self.compute_loss(x, y, self(x))
        self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
        return {"loss": loss}


class LooksAsEpochsBegin(LooksInFit):
    def on_epoch_begin(self, epoch, logs=None):
        next(iter(self.part)) if isinstance(self.part, tf.data.Dataset) else self.look()


@pytest.mark.parametrize(
    ("kind", "probe"),
    [("arrays", Probe), ("PyDataset", TapeProbe), ("tf.data", TapeProbe)],
    ids=["arrays-optimizer", "PyDataset-tape", "tf.data-tape"],
)
def test_fit_deals_out_anew_with_an_optimizer_or_a_tape(hvd, rank, size, mpi, kind, probe):
    """The orders of one process, also where a rank has a look as an epoch begins, or a `fit` of its own before."""
    if ITEMS % size:
        pytest.skip("more ranks prove nothing new")
    part = PARTS[kind](hvd.data, shuffle=True, seed=5, even=None)
    plain = {"wrap": lambda optimizer: optimizer}
    expected = orders_of_one_process(hvd.data, kind)
    callbacks = [LooksAsEpochsBegin(part)] if rank == size - 1 and size > 1 else []
    orders = []
    for epochs in (3, 2):
        if rank == 0 and probe is TapeProbe:
            seen_in_fit(part, epochs=2, **plain)
        wrap = {} if probe is Probe else plain
        orders += [dealt(mpi, epoch) for epoch in seen_in_fit(part, *callbacks, epochs=epochs, probe=probe, **wrap)]
    assert all(sorted(order) == list(range(ITEMS)) for order in orders)
    if probe is Probe:
        assert orders == expected
    elif kind == "tf.data":  # Keras ends an epoch of a PyDataset before the first one, too
        assert [orders[epoch] for epoch in (1, 2, 4)] == [expected[epoch] for epoch in (1, 2, 4)]
    assert len({tuple(order) for order in orders}) == 5


def test_training_matches_one_process(hvd, rank, size):
    """The n-th batches of all ranks are the n-th batch of one process: equal weights after shuffled epochs."""
    random = np.random.default_rng(3)
    x = random.normal(size=(6 * size, 6)).astype(np.float32)
    y = np.tanh(x[:, :3])

    def trained(data, optimizer):
        model = dense_model()
        model.compile(optimizer, loss="mse")
        model.fit(data, epochs=4, shuffle=False, verbose=0)
        return flat_weights(model)

    one = hvd.data.shard((x, y), batch_size=2 * size, shuffle=True, seed=9, rank=0, size=1)
    mine = hvd.data.shard((x, y), batch_size=2, shuffle=True, seed=9)
    expected = trained(one, keras.optimizers.Adam(0.01))
    got = trained(mine, hvk.DistributedOptimizer(keras.optimizers.Adam(0.01)))
    assert distance(got, expected) < 1e-6


# --- agreement ---


def test_different_data_is_an_error_everywhere(hvd, rank, size):
    if size == 1:
        pytest.skip("one rank agrees with itself")
    with pytest.raises(ValueError, match=rf"items=5 on rank 0 and items=6 on rank {size - 1} \(this is rank {rank}\)"):
        hvd.data.shard(np.arange(5 + (rank == size - 1)))
    with pytest.raises(ValueError, match="even='pad' on rank 0 and even=None on rank 1"):
        hvd.data.shard(tf.data.Dataset.range(5), even=None if rank == 1 else "pad")


def test_shuffling_everything_needs_a_length(hvd):
    with pytest.raises(ValueError, match="of unknown length.*shuffle=10_000"):
        hvd.data.shard(of_unknown_length(), shuffle=True)
    with pytest.raises(ValueError, match="without end"):
        hvd.data.shard(tf.data.Dataset.range(3).repeat(), shuffle=True)
    with pytest.raises(ValueError, match=r"Batch the result"):
        hvd.data.shard(tf.data.Dataset.range(3), batch_size=2)
