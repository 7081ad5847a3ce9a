"""The mpirun that the library finds is the one that these tests start jobs with."""

from __future__ import annotations

from pathlib import Path

import pytest

from smddp_tf.run.launch.mpi import find_mpi
from tests.support.mpirun import find_mpirun

pytestmark = pytest.mark.launches


def test_the_mpirun_that_is_found_is_ours() -> None:
    assert Path(find_mpi().mpirun).parent.resolve() == Path(find_mpirun()).parent.resolve()
