"""The settings of a job that may start again."""

from __future__ import annotations

from smddp_tf.lifecycle.restart_settings import JOB, job_of


def test_the_name_of_a_job() -> None:
    assert job_of({JOB: "ours", "PMIX_NAMESPACE": "mpi"}) == "ours"
    assert job_of({"PMIX_NAMESPACE": "mpi"}) == "mpi"
    assert job_of({}) == ""
