"""Which files a dataset reads: each kind of reader, and what cannot be cut by file."""

from __future__ import annotations

from collections import Counter

import pytest
import tensorflow as tf

from tests.data.record_files import of_all, read, written

pytestmark = pytest.mark.ranks("2")


@pytest.fixture(scope="module")
def files(mpi, tmp_path_factory) -> list[str]:
    return written(mpi, tmp_path_factory)


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
