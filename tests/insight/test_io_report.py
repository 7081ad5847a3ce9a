"""io_report: the need by its formula, and what is measured from files and datasets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from smddp_tf.insight import IoReport, io_report


def test_the_example_of_the_guide() -> None:
    """100 GB in 30 s need about 3.3 GB/s, which SCRATCH_2 gives from 14 steps of 1.2 TiB on."""
    report = io_report(bytes=100e9, epoch_seconds=30)
    assert report.needed == pytest.approx(3.33e9, rel=0.01)
    assert report.lustre_steps == 14
    assert report.lustre_steps * 240e6 >= report.needed > (report.lustre_steps - 1) * 240e6
    assert (report.cold, report.warm) == (None, None)
    assert "needed   3.33 GB/s: 100 GB in 30 s" in str(report)
    assert "SCRATCH_2, 16.8 TiB: 14 steps of 240 MB/s" in str(report)


@pytest.mark.parametrize(("rate", "steps"), [(1e6, 1), (240e6, 1), (241e6, 2), (481e6, 4), (900e6, 4), (961e6, 6)])
def test_capacities_are_those_that_exist(rate: float, steps: int) -> None:
    assert io_report(bytes=rate * 10, epoch_seconds=10).lustre_steps == steps


def test_files_are_read_twice(tmp_path: Path) -> None:
    (tmp_path / "deeper").mkdir()
    for number, name in enumerate(("a", "deeper/b")):
        (tmp_path / name).write_bytes(np.random.default_rng(number).bytes((number + 1) << 20))
    report = io_report(files=tmp_path, epoch_seconds=60, ranks=2)
    assert report.bytes == 3 << 20
    assert report.cold > 0
    assert report.warm > report.needed == (3 << 20) / 60
    assert "fit into this host's memory" in report.advice
    assert "too slow" not in report.advice
    assert "cold" in str(report)
    one = io_report(files=[tmp_path / "a"], epoch_seconds=1e-9)
    assert one.bytes == 1 << 20
    assert "too slow even from memory" in one.advice


def test_any_iterable_is_gone_through(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(bytes(5 << 20))
    passes = []

    class Data:
        def __iter__(self) -> Iterator[bytes]:
            passes.append(len(passes))
            return iter([(tmp_path / "a").read_bytes()])

    report = io_report(dataset=Data(), epoch_seconds=1)
    assert passes == [0]
    assert report.cold is None  # nobody knows which files to drop from memory
    assert 5 << 20 <= report.bytes < 6 << 20
    io_report(dataset=Data(), files=tmp_path / "a", epoch_seconds=1)
    assert passes == [0, 1, 2]


def test_advice_follows_from_the_figures() -> None:
    def advice(cold: float, warm: float, memory: float) -> str:
        return IoReport(10e9, 10, 1e9, cold, warm, memory, 6).advice

    assert advice(2e9, 3e9, 5e9).startswith("The data do not fit")
    assert advice(0.5e9, 3e9, 20e9).startswith("Storage is too slow;")
    assert advice(0.5e9, 0.9e9, 20e9).startswith("Reading is too slow even from memory")


def test_wrong_numbers_are_refused() -> None:
    for wrong in ({}, {"bytes": 0}, {"bytes": -1}, {"bytes": 1, "ranks": 0}):
        with pytest.raises(ValueError, match="io_report needs positive `bytes`"):
            io_report(epoch_seconds=1, **wrong)
    with pytest.raises(ValueError, match="epoch_seconds=0"):
        io_report(bytes=1, epoch_seconds=0)
    with pytest.raises(FileNotFoundError):
        io_report(files="/no/such/file", epoch_seconds=1)
