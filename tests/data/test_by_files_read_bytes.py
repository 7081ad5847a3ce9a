"""Ranks that cut eight files read the data once in all, as Linux counts it; by element each rank reads everything."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.storage import FILES, RECORD_BYTES, RECORDS, measure

pytestmark = pytest.mark.ranks("2", "2+2")

TOTAL = FILES * RECORDS * RECORD_BYTES
MORE = 1.02  # what records have around them, and what else a process reads


def test_files_are_read_once_in_all(hvd, size, mpi, tmp_path):
    of_ranks = mpi.allgather(measure(Path(mpi.bcast(str(tmp_path)))))
    for way, times in (("element", size), ("file", 1), ("auto", 1)):
        read = [answer[way]["read"] for answer in of_ranks]
        assert times <= sum(read) / TOTAL <= times * MORE, (way, read)
        numbers = [number for answer in of_ranks for number in answer[way]["numbers"]]
        assert sorted(numbers) == list(range(FILES * RECORDS))
        if FILES % size == 0:  # the files are equally large
            assert max(read) <= MORE * min(read), (way, read)
