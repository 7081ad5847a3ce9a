"""smddp_tf.data.shard by file: together the ranks get what the files hold, each element once, in any pipeline."""

from __future__ import annotations

import os
import warnings
from collections import Counter

import pytest
import tensorflow as tf

from tests.data.record_files import FILES, of_all, read, written

pytestmark = pytest.mark.ranks("2")


@pytest.fixture(scope="module")
def files(mpi, tmp_path_factory) -> list[str]:
    return written(mpi, tmp_path_factory)


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
