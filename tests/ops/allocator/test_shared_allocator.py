"""TensorFlow's tensors in memory that a node's ranks map: by default, and where that cannot be."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.support.mpirun import Finished, launch
from tests.variants import full

pytestmark = pytest.mark.launches

SCRIPT = Path(__file__).with_name("shared_tensors.py")
TIMEOUT = 240.0


def smddprun(*arguments: str | Path, **env: str) -> Finished:
    return launch(["-m", "smddp_tf.run", *arguments], ranks=None, timeout=TIMEOUT, env=env).check()


def told(done: Finished) -> list[tuple[int, int, str]]:
    """By rank: bytes of sums that were read where they lay, the same of training, and the weights' hash."""
    found = re.findall(r"rank (\d+): sums (\d+) training (\d+) weights (\w+)", done.output)
    return [(int(sums), int(training), weights) for _, sums, training, weights in sorted(found)]


@pytest.fixture(scope="module")
def copied() -> str:
    """The weights after training without shared tensors."""
    (first, second) = told(smddprun("-np", "2", SCRIPT, SMDDP_SHARED_TENSORS="0"))
    assert first[:2] == second[:2] == (0, 0)
    assert first[2] == second[2]
    return first[2]


def test_tensors_are_read_where_they_lie(copied: str) -> None:
    """By both ranks, with and after a fork; the weights are those of copied tensors to the last bit."""
    ranks = told(launch([SCRIPT, "fork"], 2, TIMEOUT).check())
    assert len(ranks) == 2
    for sums, training, weights in ranks:
        # Half of the contributions and half of the sums of two arrays of 4 MiB and one of 0.4 MB.
        assert sums == pytest.approx(2 * (4 << 20) + 400_000, rel=0.02)
        assert training > 0
        assert weights == copied


@full
def test_another_allocator() -> None:
    """TensorFlow's BFC allocator gets its memory from ours, which does not share it."""
    done = smddprun("-np", "2", SCRIPT, TF_CPU_ALLOCATOR_USE_BFC="1")
    assert [referred[:2] for referred in told(done)] == [(0, 0)] * 2


@full
def test_ranks_of_two_nodes(copied: str) -> None:
    """Two share theirs, the third has nobody to share with; sums from the other node are read in place, too."""
    ranks = told(smddprun("-np", "3", SCRIPT, "hosts=a,a,b"))
    assert [sums > 4 << 20 for sums, _, _ in ranks] == [True, True, False]
    assert len({weights for _, _, weights in ranks}) == 1


@full
def test_one_rank_without(copied: str) -> None:
    """Then all of its node copy, and the log of the others says why."""
    done = smddprun("-np", "2", SCRIPT, "not_on=1", SMDDP_LOG_LEVEL="info")
    assert told(done) == [(0, 0, copied), (0, 0, copied)]
    assert "this rank cannot map those of rank 1: its tensors lie in ordinary memory" in done.output


def test_too_late() -> None:
    """TensorFlow would end the process where an allocator comes after its first tensor."""
    late = (
        "import tensorflow as tf; first = tf.fill([50_000], 2.0)\n"
        "import smddp_tf as hvd; hvd.init()\n"
        "mine = tf.fill([50_000], 3.0 + hvd.rank()); total = hvd.allreduce(mine, op=hvd.Sum)\n"
        "from smddp_tf._native import loader, shared_tensors\n"
        "referred = loader.core().stats()['node_bytes_referred']\n"
        "print('sum', float(total[49_999] + first[0]), shared_tensors.memory()[2], referred)"
    )
    assert smddprun("-np", "2", sys.executable, "-c", late).output.count("sum 9.0 -1 0") == 2


def test_one_rank_alone() -> None:
    ((sums, training, _),) = told(launch([SCRIPT], 1, TIMEOUT).check())
    assert (sums, training) == (0, 0)
