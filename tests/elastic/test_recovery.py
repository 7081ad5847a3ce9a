"""A rank is killed, and training goes on from the last commit in a new start of the job.

A rank that ends its program by itself is an error on the others.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.object_store import BUCKET, object_store, variables, why_none
from tests.support.mpirun import SCRIPTS, launch

pytestmark = pytest.mark.launches

RANKS = SCRIPTS / "elastic_ranks.py"
BATCHES, DEATH = 12, 8  # the commit before is that of batch 6


def lines_of(folder: Path, word: str) -> list[list[str]]:
    """What the ranks have written that begins with `word`, sorted."""
    lines = [line.split() for log in folder.glob("log.*") for line in log.read_text().splitlines()]
    return sorted(line[1:] for line in lines if line[0] == word)


@pytest.mark.parametrize("where", ["folder", "object store"])
def test_job_starts_again_from_its_last_commit(tmp_path: Path, where: str) -> None:
    with ExitStack() as stack:
        place, env = str(tmp_path / "commits"), {}
        if where == "object store":
            if reason := why_none():
                pytest.skip(reason)
            place, env = f"s3://{BUCKET}/commits", variables(stack.enter_context(object_store()))
        arguments = ["--elastic", "-np", 2, "--commit-dir", place, RANKS, tmp_path, BATCHES, 0, DEATH]
        done = launch(["-m", "smddp_tf.run", *arguments], ranks=None, timeout=120, env=env).check()
    begun = lines_of(tmp_path, "begin")
    assert begun == [[str(batch), str(rank), "2", str(rank), "2"] for batch in (0, 6) for rank in range(2)]
    assert lines_of(tmp_path, "end") == [["12", "2", "equal"]] * 2
    assert f"starts again with 2 ranks, from commit 2 in {place}" in done.output


FEWER_STEPS = """
import smddp_tf as hvd
hvd.init()
@hvd.elastic.run
def train(state):
    while state.step < 2 + 3 * hvd.rank():
        state.step += 1
        state.commit()
train(hvd.elastic.ObjectState(step=0))
"""


def test_a_rank_with_fewer_steps_is_not_waited_for() -> None:
    job = launch(["-c", FEWER_STEPS], 2, timeout=300, env={"SMDDP_START_TIMEOUT": "120"})
    assert job.returncode not in (0, None), job.output
    assert "Rank 0 has ended its program while this rank was still training" in job.output
    assert job.seconds < 120
