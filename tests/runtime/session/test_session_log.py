"""What the engine's log says, by level; and that it says nothing by default."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.mpirun import SCRIPTS, launch

pytestmark = pytest.mark.launches

RANKS = 3
JOB = [SCRIPTS / "on_pretended_nodes.py", "2", Path(__file__).with_name("logged.py")]


@pytest.fixture(scope="module")
def lines() -> list[str]:
    """At level trace, with the time, and with a variable that is misspelt."""
    env = {"SMDDP_LOG_LEVEL": "TRACE", "HOROVOD_LOG_HIDE_TIME": "0", "SMDDP_BUCKETBYTES": "1", "SMDDP_TIMLINE": "x"}
    output = launch(JOB, RANKS, timeout=120, env=env).check().output.splitlines()
    stamp = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} (smddp_tf \[rank .*)"
    return [match[1] for line in output if (match := re.fullmatch(stamp, line))]


@pytest.mark.parametrize(
    ("ranks", "line"),
    [
        (
            "0",
            r"warning: Unknown .* SMDDP_BUCKETBYTES \(SMDDP_BUCKET_BYTES\?\), SMDDP_TIMLINE \(SMDDP_TIM.*\?\)",
        ),
        (
            "0",
            r"info: smddp_tf \S+: 3 ranks on 2 nodes \(2\+1\); (Open MPI|MPICH).*; TensorFlow .*; Keras .*; CPU",
        ),
        ("012", r"debug: Rank R \(host \S+\) of 3 begins its session, as local rank [01] of [12]"),
        ("012", r"debug: plan 'train' .* is agreed on: 1 gradients of 1200 bytes.*; between nodes \w+"),
        ("012", r"debug: process set 1 begins: ranks \[0, 1\]"),
        ("012", r"debug: process set 1 has been removed"),
        ("012", r"debug: hvd\.join: this rank has no more data"),
        ("012", r"debug: hvd\.join is over: rank \d joined last"),
        ("012", r"debug: the session ends: \d+ requests, 2 gradient buckets"),
        ("012", r"trace: op_announced 'loss' 0 ALLREDUCE"),
        ("012", r"trace: bucket_start 'train' 0"),
    ],
)
def test_line(lines: list[str], ranks: str, line: str) -> None:
    for rank in "012":
        wanted = re.escape(f"smddp_tf [rank {rank}] ") + line.replace("Rank R", f"Rank {rank}")
        assert any(re.match(wanted, one) for one in lines) == (rank in ranks), "\n".join(lines)


def test_silent_by_default() -> None:
    assert "smddp_tf [" not in launch(JOB, RANKS, timeout=120).check().output
