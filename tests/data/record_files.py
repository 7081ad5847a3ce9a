"""Files of records, and what all ranks read of them together."""

from __future__ import annotations

from collections import Counter

import tensorflow as tf

FILES = 5


def read(dataset) -> list[bytes]:
    return list(dataset.as_numpy_iterator())


def of_all(mpi, part) -> Counter[bytes]:
    return Counter(item for mine in mpi.allgather(read(part)) for item in mine)


def written(mpi, tmp_path_factory) -> list[str]:
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
