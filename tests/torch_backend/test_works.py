"""What collectives return, and their errors. Run by `make test-torch`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.torch_backend import jobs

pytest.importorskip("torch", reason="needs the environment of `make test-torch`")


def test_works_and_futures(tmp_path: Path) -> None:
    finished = jobs.by_mpirun(2, "works", tmp_path)
    assert finished.returncode == 0, finished.output
    assert jobs.results(tmp_path, 2) == ["passed"] * 2


@pytest.mark.parametrize(
    ("how", "told"), [("raises", "uncaught exception: ValueError: a bad sample"), ("killed", "signal 9")]
)
def test_a_rank_that_fails_is_named(how: str, told: str, tmp_path: Path) -> None:
    """In the middle of a backward pass, whose waits are PyTorch's own."""
    finished = jobs.by_mpirun(2, "fails", tmp_path, how, timeout=40)
    assert finished.returncode != 0
    assert not finished.timed_out
    assert told in finished.output, finished.output
    assert "Rank 1 (host" in finished.output or how == "killed", finished.output
    assert not list(tmp_path.iterdir())


def test_a_lost_rank_is_named_without_mpi(tmp_path: Path) -> None:
    finished = jobs.by_torchrun(2, "fails", tmp_path, "killed", timeout=40)
    assert finished.returncode != 0
    assert "ank 1" in finished.output
    assert not list(tmp_path.iterdir())
