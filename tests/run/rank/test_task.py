"""`smddp_tf.run.run(function)`: what ranks return and raise."""

from __future__ import annotations

import os
import re
import time

import pytest

from smddp_tf.run import run
from tests.support.mpirun import environment

pytestmark = pytest.mark.launches


def test_run_returns_every_ranks_result(monkeypatch) -> None:
    clean(monkeypatch)
    offset = 100

    def work(factor: int, *, power: int) -> tuple[int, int]:
        import smddp_tf as hvd

        hvd.init()
        return hvd.size(), offset + factor * (hvd.rank() + 1) ** power

    assert run(work, args=(3,), kwargs={"power": 2}, num_proc=2) == [(2, 103), (2, 112)]


def test_run_raises_what_a_rank_raised(monkeypatch, capfd) -> None:
    clean(monkeypatch)

    class OwnError(Exception):
        pass

    def work() -> None:
        if os.environ["HOROVOD_RANK"] == "1":
            raise OwnError("deep inside")
        time.sleep(600)

    with pytest.raises(Exception, match="deep inside") as raised:
        run(work, num_proc=2)
    assert type(raised.value).__name__ == "OwnError"
    cause = str(raised.value.__cause__)
    assert "on rank 1" in cause
    assert re.search(r"line \d+, in work", cause), cause  # cloudpickle 3.1.3 leaves out the name of the file


@pytest.mark.parametrize("without", [{"use_gloo": True}, {"use_mpi": False}])
def test_run_without_mpi(monkeypatch, without: dict[str, bool]) -> None:
    clean(monkeypatch)

    def work(base: int) -> tuple[int, bool]:
        return base + int(os.environ["HOROVOD_RANK"]), any(name.startswith("OMPI_COMM_WORLD") for name in os.environ)

    assert run(work, args=(10,), num_proc=2, **without) == [(10, False), (11, False)]


def test_run_raises_what_one_rank_raised_and_not_what_came_of_it_elsewhere(monkeypatch) -> None:
    clean(monkeypatch)

    def work() -> None:
        import numpy as np

        import smddp_tf as hvd
        from tests.native_module import core

        hvd.init()
        for name in ("first", "second"):
            core().allreduce([np.ones(3, np.float32)], "float32", name, int(hvd.Sum))
            if hvd.rank() == 1:
                raise KeyError("mine")

    with pytest.raises(KeyError, match="mine") as raised:
        run(work, num_proc=3)
    assert "on rank 1" in str(raised.value.__cause__)


def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = environment()
    for name in set(os.environ) - set(wanted):
        monkeypatch.delenv(name)
    for name, value in wanted.items():
        monkeypatch.setenv(name, value)
