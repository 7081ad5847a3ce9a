"""The settings of a job that may start again."""

from __future__ import annotations

import pytest

from smddp_tf.exceptions import LaunchError
from smddp_tf.lifecycle.restart_settings import JOB, MIN_RANKS, job_of, min_ranks_of


@pytest.mark.parametrize(("text", "ranks"), [("", 1), ("1", 1), ("12", 12)])
def test_the_smallest_number_of_ranks(text: str, ranks: int) -> None:
    assert min_ranks_of({MIN_RANKS: text}) == ranks
    assert min_ranks_of({}) == 1


@pytest.mark.parametrize("text", ["0", "-2", "two", "1.5"])
def test_what_is_no_number_of_ranks_is_named(text: str) -> None:
    with pytest.raises(LaunchError, match=rf"{MIN_RANKS} must be a number of ranks.*Received: '{text}'"):
        min_ranks_of({MIN_RANKS: text})


def test_the_name_of_a_job() -> None:
    assert job_of({JOB: "ours", "PMIX_NAMESPACE": "mpi"}) == "ours"
    assert job_of({"PMIX_NAMESPACE": "mpi"}) == "mpi"
    assert job_of({}) == ""
