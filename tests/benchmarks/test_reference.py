"""The reference that our engine is held against must itself be right."""

from __future__ import annotations

import json
import shutil
import subprocess
import threading

import numpy as np
import pytest

from benchmarks import cases, reference

pytestmark = pytest.mark.skipif(not shutil.which("cc"), reason="no C compiler")


def test_ranks_as_threads_agree_with_numpy(tmp_path):
    """More than one chunk, a ragged end, several calls in a row; 1, 2, 3 and 4 ranks."""
    counts = [1, 15, reference.CHUNK_BYTES // 4, 5 * reference.CHUNK_BYTES // 4 + 3, 2]
    for ranks in (1, 2, 3, 4):
        path = tmp_path / f"group{ranks}"
        reference.Group.create_file(path, ranks)
        arrays = [[cases.input_values(rank, (count,)) for count in counts] for rank in range(ranks)]
        groups = [reference.Group(str(path), rank, ranks) for rank in range(ranks)]

        def run(rank, groups=groups, arrays=arrays):
            for array in arrays[rank]:
                groups[rank].barrier()
                groups[rank].allreduce(array)

        threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(ranks)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=60)
            assert not thread.is_alive()
        for of_rank in arrays:
            for count, array in zip(counts, of_rank):
                np.testing.assert_array_equal(array, cases.expected_sum(ranks, (count,)))


def test_the_program_prints_a_line_per_size():
    program = reference.build().with_name("reference")
    done = subprocess.run(
        [program, "2", "65536", "4", "300004"], capture_output=True, text=True, timeout=60, check=True
    )
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["bytes"] for line in lines] == [4, 300004]
    assert [line["wrong"] for line in lines] == [0, 0]
