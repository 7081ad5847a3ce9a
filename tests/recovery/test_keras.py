"""A Keras model whose rank is killed: smaller and with a new learning rate, or again, to the same bits."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from tests.support.mpirun import launch

SCRIPT = Path(__file__).with_name("keras_ranks.py")
DEATH = 8  # the commit before is that of batch 6


def ends(folder: Path, ranks: int) -> list[dict[str, np.ndarray]]:
    return [dict(np.load(folder / f"end.{rank}.npz")) for rank in range(ranks)]


def test_survivors_go_on_with_a_rescaled_learning_rate(tmp_path: Path) -> None:
    words = [
        "-m",
        "smddp_tf.run",
        "--no-mpi",
        "--elastic",
        "-np",
        3,
        "--min-np",
        2,
        "--commit-dir",
        tmp_path / "commits",
    ]
    launch([*words, SCRIPT, tmp_path, DEATH], ranks=None, timeout=200).check()
    first, second = ends(tmp_path, 2)
    for rank, end in enumerate((first, second)):
        assert end["begun"].tolist() == [[0, rank, 3], [6, rank, 2]]
        assert end["rate"] == pytest.approx(0.02)
    for name in set(first) - {"begun"}:
        np.testing.assert_array_equal(first[name], second[name])


def test_restarted_job_ends_with_the_same_bits(tmp_path: Path) -> None:
    (tmp_path / "killed").mkdir()
    launch([SCRIPT, tmp_path], 2, timeout=200).check()
    words = ["-m", "smddp_tf.run", "--elastic", "-np", 2, "--commit-dir", tmp_path / "commits"]
    launch([*words, SCRIPT, tmp_path / "killed", DEATH], ranks=None, timeout=300).check()
    for want, got in zip(ends(tmp_path, 2), ends(tmp_path / "killed", 2)):
        assert got.pop("begun").tolist()[0][0] == 6
        want.pop("begun")
        assert want.keys() == got.keys()
        for name in want:
            np.testing.assert_array_equal(got[name], want[name], err_msg=name)


def test_ranks_that_come_later_get_the_model(tmp_path: Path) -> None:
    """With its optimizer and the learning rate of the reset callback; the first rank goes on in place.

    The two come together, or one after the other where a commit of the first rank lies between them.
    """
    hosts, batches = tmp_path / "hosts", 300
    hosts.write_text("localhost:1\n")
    flags = ["--no-mpi", "--host-discovery-script", f"cat {hosts}", "--commit-dir", tmp_path / "commits"]
    words = ["-m", "smddp_tf.run", *flags, SCRIPT, tmp_path, -1, batches, 1000]
    with ThreadPoolExecutor(1) as pool:
        job = pool.submit(launch, words, ranks=None, timeout=300)
        for ranks in (1, 3):
            hosts.write_text(f"localhost:{ranks}\n")
            while [file.read_text() for file in tmp_path.glob("began.*")] != [str(ranks)] * ranks:
                assert not job.done(), job.result().output
                time.sleep(0.1)
        (tmp_path / "hurry").touch()
        job.result().check()
    first, *others = ends(tmp_path, 3)
    start, *between, (joined, *last) = first["begun"].tolist()
    assert (start, last) == ([0, 0, 1], [0, 3])
    assert [[batch % 3, *place] for batch, *place in between] == [[0, 0, 2]] * len(between)
    begun = [0, *(batch for batch, *_ in between), joined]
    assert begun == sorted(set(begun))
    assert len(begun) <= 3
    assert joined < batches
    assert joined % 3 == 0
    for rank, end in enumerate(others, 1):
        earlier = [[batch, 1, 2] for batch, *_ in between] if rank == 1 else []
        assert end["begun"].tolist() == [*earlier, [joined, rank, 3]]
        assert end["rate"] == pytest.approx(0.03)
        for name in set(first) - {"begun"}:
            np.testing.assert_array_equal(first[name], end[name])
