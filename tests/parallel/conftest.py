"""Tests that need several ranks: run under mpirun by tests/launch/test_parallel_suites.py, ignored elsewhere.

By hand:  mpirun -np 2 --oversubscribe --bind-to none python -m pytest tests/parallel -p tests.mpi_plugin
"""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from mpi4py import MPI


def pytest_ignore_collect(config: pytest.Config) -> bool | None:
    return None if config.pluginmanager.hasplugin("tests.mpi_plugin") else True


@pytest.fixture(scope="session")
def hvd() -> Iterator[ModuleType]:
    """`smddp_tf`, initialised once for the whole session."""
    import smddp_tf

    smddp_tf.init()
    yield smddp_tf
    smddp_tf.shutdown()


@pytest.fixture(scope="session")
def rank(hvd: ModuleType) -> int:
    return hvd.rank()


@pytest.fixture(scope="session")
def size(hvd: ModuleType) -> int:
    return hvd.size()


@pytest.fixture(scope="session")
def mpi() -> Iterator[MPI.Comm]:
    """A communicator of all ranks that nothing else uses: the oracle for our own collectives."""
    from mpi4py import MPI

    communicator = MPI.COMM_WORLD.Dup()
    yield communicator
    communicator.Free()
