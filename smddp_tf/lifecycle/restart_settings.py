"""Settings that `smddprun --elastic` sends to the ranks of a job that may restart."""

from __future__ import annotations

from collections.abc import Mapping

COMMIT_DIR = "SMDDP_COMMIT_DIR"  # the folder for commits
JOB = "SMDDP_RUN_JOB"  # the same in all starts of a job


def job_of(environment: Mapping[str, str]) -> str:
    """A name that no other job has; "" where the launcher gives none."""
    return environment.get(JOB) or environment.get("PMIX_NAMESPACE", "")
