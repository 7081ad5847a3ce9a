"""smddp_tf.data.shard by file: together the ranks get what the files hold, each element once, in any pipeline."""

from __future__ import annotations

import os
import warnings
from collections import Counter

import keras
import pytest
import tensorflow as tf

import smddp_tf.keras as hvk
from smddp_tf.data import first_epoch

pytestmark = pytest.mark.ranks("2")

FILES = 5


@pytest.fixture(scope="module")
def files(size, mpi, tmp_path_factory) -> list[str]:
    """Rank 0's, for all; file i has 3 + i records, each with a text of its own."""
    folder = mpi.bcast(str(tmp_path_factory.mktemp("files")))
    names = [f"{folder}/{number}.tfrecord" for number in range(FILES)]
    if mpi.rank == 0:
        for number, name in enumerate(names):
            with tf.io.TFRecordWriter(name) as file:
                for record in range(3 + number):
                    file.write(f"{number}-{record}".encode())
    mpi.barrier()
    return names


def read(dataset) -> list[bytes]:
    return list(dataset.as_numpy_iterator())


def of_all(mpi, part) -> Counter[bytes]:
    return Counter(item for mine in mpi.allgather(read(part)) for item in mine)


def everything() -> Counter[bytes]:
    return Counter(f"{number}-{record}".encode() for number in range(FILES) for record in range(3 + number))


def unseeded(names: list[str]) -> tf.data.Dataset:
    """Every rank has another order of files; a seed that is set would make them equal."""
    return tf.data.Dataset.from_tensor_slices(names).shuffle(FILES)


PIPELINES = {
    "reader": tf.data.TFRecordDataset,
    "parallel reader": lambda names: tf.data.TFRecordDataset(names, num_parallel_reads=2),
    "list_files": lambda names: tf.data.Dataset.list_files(f"{os.path.dirname(names[0])}/*").interleave(
        tf.data.TFRecordDataset
    ),
    "files shuffled, mapped, shuffled": lambda names: (
        unseeded(names).map(tf.identity).shuffle(3).interleave(tf.data.TFRecordDataset, cycle_length=2)
    ),
    "files shuffled once": lambda names: (
        tf.data.Dataset.from_tensor_slices(names)
        .shuffle(FILES, reshuffle_each_iteration=False)
        .flat_map(tf.data.TFRecordDataset)
    ),
    "elements shuffled": lambda names: tf.data.TFRecordDataset(names).shuffle(7).prefetch(2),
    "batches": lambda names: tf.data.TFRecordDataset(names).batch(4).unbatch(),
    "known length": lambda names: tf.data.TFRecordDataset(names).apply(tf.data.experimental.assert_cardinality(25)),
    "two readers": lambda names: tf.data.TFRecordDataset(names[:2]).concatenate(tf.data.TFRecordDataset(names[2:])),
}


@pytest.mark.parametrize("pipeline", PIPELINES)
def test_together_the_ranks_get_every_element_once(hvd, size, mpi, files, pipeline):
    if pipeline == "two readers" and size > 2:
        pytest.skip("one of the readers has two files")
    part = hvd.data.shard(PIPELINES[pipeline](files), by="file")
    for _ in range(2):
        assert of_all(mpi, part) == everything()
    owners = Counter(number for mine in mpi.allgather(read(part)) for number in {item[:1] for item in mine})
    assert set(owners.values()) == {1}  # no file is read by two ranks


def test_text_lines_and_records_of_equal_length(hvd, rank, size, mpi, tmp_path):
    folder = mpi.bcast(str(tmp_path))
    names = [f"{folder}/{number}" for number in range(size)]
    if rank == 0:
        for number, name in enumerate(names):
            with open(name, "w", encoding="ascii") as file:
                file.write(f"{number}aa\n{number}bb\n")
    mpi.barrier()
    text = hvd.data.shard(tf.data.TextLineDataset(names), by="file")
    assert read(text) == [f"{rank}aa".encode(), f"{rank}bb".encode()]
    records = hvd.data.shard(tf.data.FixedLengthRecordDataset(names, 4), by="file")
    assert read(records) == [f"{rank}aa\n".encode(), f"{rank}bb\n".encode()]


def test_shuffle_draws_each_rank_its_own_elements_anew(hvd, mpi, files):
    part = hvd.data.shard(tf.data.TFRecordDataset(files), by="file", shuffle=30, seed=4)
    orders = []
    for epoch in (0, 1, 0):
        hvd.data.set_epoch(part, epoch)
        orders.append(mpi.allgather(read(part)))
        assert Counter(item for mine in orders[-1] for item in mine) == everything()
    assert orders[0] == orders[2] != orders[1]


def test_files_that_are_repeated_are_shared_out_without_end(hvd, mpi, size, files):
    dataset = unseeded(files).repeat().interleave(tf.data.TFRecordDataset)
    part = hvd.data.shard(dataset, by="file")
    assert set(mpi.allgather(len(read(part.take(60))))) == {60}


def test_io_report_finds_the_files_of_a_dataset(hvd, rank, size, files):
    part = hvd.data.shard(tf.data.TFRecordDataset(files).batch(2), by="file")
    report = hvd.insight.io_report(dataset=part, epoch_seconds=10, ranks=size)
    assert report.bytes == sum(map(os.path.getsize, files))
    assert report.cold > 0
    assert report.warm > 0


# --- what cannot be cut by file ---


def test_fewer_files_than_ranks(hvd, rank, size, mpi, files):
    if size == 1:
        pytest.skip("one file is enough for one rank")
    dataset = tf.data.TFRecordDataset(files[: size - 1])
    with pytest.raises(ValueError, match=f"a file for each of {size} ranks.*Received: {size - 1} files"):
        hvd.data.shard(dataset, by="file")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        part = hvd.data.shard(dataset, by="auto", even=None)
    told = [each for each in caught if "Every rank reads all files" in str(each.message)]
    assert len(told) == (rank == 0)
    assert of_all(mpi, part) == Counter(read(dataset))


@pytest.mark.parametrize("counting", ["take", "skip", "shard"])
def test_what_counts_elements_is_not_done_by_each_rank_for_itself(hvd, size, mpi, files, counting):
    arguments = {"take": (7,), "skip": (7,), "shard": (2, 1)}[counting]
    dataset = getattr(tf.data.TFRecordDataset(files), counting)(*arguments)
    with pytest.raises(ValueError, match=rf"after the files are read comes a {counting.title()}Dataset"):
        hvd.data.shard(dataset, by="file")
    assert of_all(mpi, hvd.data.shard(dataset, by="auto", even=None)) == Counter(read(dataset))


def test_data_without_files(hvd, rank, size, mpi, files):
    numbers = tf.data.Dataset.range(2 * size)
    with pytest.raises(ValueError, match="the dataset reads no files.*shard the names"):
        hvd.data.shard(numbers, by="file")
    assert sorted(n for mine in mpi.allgather(read(hvd.data.shard(numbers, by="auto"))) for n in mine) == [
        *range(2 * size)
    ]
    mixed = tf.data.Dataset.zip(numbers, tf.data.TFRecordDataset(files))
    if size > 1:  # one rank has nothing to cut
        with pytest.raises(ValueError, match="AutoShard finds no files to share out"):
            hvd.data.shard(mixed, by="file")
    with pytest.raises(ValueError, match="is for a tf.data.Dataset"):
        hvd.data.shard([1.0], by="file")
    with pytest.raises(ValueError, match="`by` must be"):
        hvd.data.shard(numbers, by="files")


def test_equal_parts_are_not_made_of_files(hvd, mpi, size, files):
    dataset = tf.data.TFRecordDataset(files)
    with pytest.raises(ValueError, match='even="drop" asks for parts of equal length'):
        hvd.data.shard(dataset, by="file", even="drop")
    part = hvd.data.shard(dataset, by="auto", even="drop")
    assert set(mpi.allgather(len(read(part)))) == {25 // size}


def test_without_a_seed_an_order_before_shard_is_told_or_refused(hvd, rank, size, files):
    """By element it loses elements."""
    if size == 1:
        pytest.skip("one rank loses nothing")
    tf.random.set_seed(None)  # an earlier test may have set one
    dataset = unseeded(files[:1]).interleave(tf.data.TFRecordDataset)
    with pytest.raises(ValueError, match=r"Elements are lost.*Cut by file it would be right, but it needs a file"):
        hvd.data.shard(dataset, by="auto")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        hvd.data.shard(unseeded(files).interleave(tf.data.TFRecordDataset))
        hvd.data.shard(tf.data.Dataset.from_tensor_slices(files).shuffle(5, seed=1))
    assert len([each for each in caught if "Elements are lost" in str(each.message)]) == (rank == 0)


def test_a_seed_on_one_rank_only_is_an_error_everywhere(hvd, rank, size, files):
    if size == 1:
        pytest.skip("one rank agrees with itself")
    tf.random.set_seed(7 if rank == 1 else None)
    try:
        dataset = unseeded(files[:1]).interleave(tf.data.TFRecordDataset)
    finally:
        tf.random.set_seed(None)
    with pytest.raises(ValueError, match="unseeded=True on rank 0 and unseeded=False on rank 1"):
        hvd.data.shard(dataset, by="auto")


# --- agreement ---


def test_ranks_that_see_other_files_are_an_error_everywhere(hvd, rank, size, files):
    if size == 1:
        pytest.skip("one rank agrees with itself")
    own = files[:-1] if rank == size - 1 else files
    with pytest.raises(ValueError, match=rf"files=\[{FILES}\] on rank 0 and files=\[{FILES - 1}\] on rank {size - 1}"):
        hvd.data.shard(tf.data.TFRecordDataset(own), by="auto")
    own = files[::-1] if rank == size - 1 else files
    with pytest.raises(ValueError, match=f"names='.*' on rank 0 and names='.*' on rank {size - 1}"):
        hvd.data.shard(tf.data.TFRecordDataset(own), by="file")
    with pytest.raises(ValueError, match="by='file' on rank 0 and by='element' on rank 1"):
        hvd.data.shard(tf.data.TFRecordDataset(files), by="element" if rank == 1 else "file")


# --- fit ---


def fit(hvd, part) -> list[str]:
    """What is said of reading in two epochs over this rank's part of records of a megabyte."""
    rows = part.map(lambda record: (tf.fill([2], tf.cast(tf.strings.length(record), tf.float32)), 1.0)).batch(2)
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile(hvk.DistributedOptimizer(keras.optimizers.SGD(1e-14)), loss="mse")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(rows, epochs=2, verbose=0)
    return [str(each.message) for each in caught if "Every rank reads all" in str(each.message)]


def test_fit_says_once_that_every_rank_reads_everything(hvd, rank, size, mpi, tmp_path, monkeypatch):
    if size == 1:
        pytest.skip("one rank has to read everything")
    monkeypatch.setattr(first_epoch, "_LEAST", 1 << 20)
    monkeypatch.setattr(first_epoch.FirstEpoch, "_has_warned", False)
    folder = mpi.bcast(str(tmp_path))
    names = [f"{folder}/{number}" for number in range(2 * size)]
    if rank == 0:
        for number, name in enumerate(names):
            with tf.io.TFRecordWriter(name) as file:
                for record in range(4):
                    file.write(bytes((4 << 20) + 4 * number + record))
    mpi.barrier()
    dataset = tf.data.TFRecordDataset(names)
    assert fit(hvd, hvd.data.shard(dataset, by="file")) == []
    told = fit(hvd, hvd.data.shard(dataset))
    assert len(told) == (rank == 0)
    assert all(f"{2 * size} files of {os.path.getsize(names[0]) * 2 * size / 1e6:.0f} MB" in text for text in told)
