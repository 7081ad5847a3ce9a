"""Open MPI's other messaging layers, over TCP: libfabric and UCX. What travels, and what a lost rank looks like."""

from __future__ import annotations

import re

import pytest

from tests.support.fabrics import FABRICS, why_not
from tests.support.mpirun import SCRIPTS, launch
from tests.variants import FULL, in_full

pytestmark = pytest.mark.launches

LIMIT_SECONDS, SUITE_SECONDS = 180.0, 1800.0


@pytest.fixture(params=FABRICS)
def fabric(request: pytest.FixtureRequest) -> dict[str, str]:
    """The variables that choose it."""
    if reason := why_not(request.param):
        pytest.skip(reason)
    return FABRICS[request.param]


@pytest.mark.parametrize(("ranks", "nodes"), [(2, "1,1"), *in_full((4, "2,2"), (2, None))])
def test_collectives_between_nodes(fabric, ranks, nodes) -> None:
    files = ["tests"] if FULL else ["tests/collectives/test_transfers.py"]
    arguments = ["-m", "pytest", *files, "-p", "tests.mpi_plugin", "-p", "no:cacheprovider", "-q", "--color=no"]
    arguments += ["--pretend-nodes", nodes] if nodes else []
    finished = launch(arguments, ranks, SUITE_SECONDS, env=fabric)
    assert finished.returncode == 0, finished.output
    assert re.search(r"\d+ passed", finished.output), finished.output


@pytest.mark.parametrize(
    ("manner", "said"),
    [("killed", r"Rank 1 \(host \S+\) has died"), *in_full(("stopped", r"No sign of life from rank 1"))],
)
def test_a_lost_rank_is_named(fabric, manner, said) -> None:
    limits = {"SMDDP_HEARTBEAT_TIMEOUT": "8", "SMDDP_FAILURE_GRACE": "1"}
    job = launch([SCRIPTS / "lost_rank.py", manner], 3, timeout=LIMIT_SECONDS, env={**fabric, **limits})
    assert not job.timed_out, job.output
    assert job.returncode != 0
    assert re.search(rf"\[rank [02]\] error: {said}", job.output), job.output
