"""Collectives of a process group, beside what PyTorch computes in one process. Run by `make test-torch`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.torch_backend import jobs

pytest.importorskip("torch", reason="needs the environment of `make test-torch`")


@pytest.mark.parametrize("program", ["reductions", "copies", "groups", "checkpoint"])
@pytest.mark.parametrize(("ranks", "nodes"), [(2, 1), (4, 2), (3, 2)], ids=["2", "2x2", "2+1"])
def test_collectives(program: str, ranks: int, nodes: int, tmp_path: Path) -> None:
    finished = jobs.by_mpirun(ranks, program, tmp_path, nodes=nodes)
    assert finished.returncode == 0, finished.output
    assert jobs.results(tmp_path, ranks) == ["passed"] * ranks


@pytest.mark.parametrize("program", ["reductions", "copies", "groups", "beside_gloo"])
def test_without_mpi(program: str, tmp_path: Path) -> None:
    finished = jobs.by_torchrun(4, program, tmp_path, nodes=2)
    assert finished.returncode == 0, finished.output
    assert jobs.results(tmp_path, 4) == ["passed"] * 4


def test_sums_in_16_bits(tmp_path: Path) -> None:
    """1 + 2**-12 is 1 in bfloat16; sums are of float32."""
    finished = jobs.by_mpirun(4, "wire", tmp_path, nodes=2)
    assert finished.returncode == 0, finished.output
    assert jobs.results(tmp_path, 4) == [4.0] * 4
