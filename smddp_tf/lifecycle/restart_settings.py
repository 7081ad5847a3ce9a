"""Settings that `smddprun --elastic` sends to the ranks of a job that may restart."""

from __future__ import annotations

from collections.abc import Mapping

from smddp_tf.exceptions import LaunchError

COMMIT_DIR = "SMDDP_COMMIT_DIR"  # the folder for commits
MIN_RANKS = "SMDDP_MIN_NP"
JOB = "SMDDP_RUN_JOB"  # the same in all starts of a job


def job_of(environment: Mapping[str, str]) -> str:
    """A name that no other job has; "" where the launcher gives none."""
    return environment.get(JOB) or environment.get("PMIX_NAMESPACE", "")


def min_ranks_of(environment: Mapping[str, str]) -> int:
    """Returns the number of ranks that a job needs to continue; 1 unless it was set.

    Raises:
        LaunchError: the variable is not a number.
    """
    text = environment.get(MIN_RANKS, "") or "1"
    if not text.isdecimal() or int(text) < 1:
        raise LaunchError(f"Environment variable {MIN_RANKS} must be a number of ranks, 1 or more. Received: '{text}'.")
    return int(text)
