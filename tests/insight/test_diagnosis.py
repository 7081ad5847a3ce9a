"""Trainings on 2 ranks that are really slowed down: their recordings name the fault and no other.

What else runs on the machine of these tests is seen as well: OversubscribedCores may fire in each of them. Where it
has, other programs may have slowed down one rank more than the other, and what else was found is not looked at.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from smddp_tf.insight import Finding, diagnose
from smddp_tf.insight.rules import late_rank, max_initialization_time, oversubscribed_cores, step_outlier
from tests.support.mpirun import SCRIPTS, launch

pytestmark = pytest.mark.launches

TRAININGS = ("map", "first+long", "rank", "file", "hog", "rank+file")
ONE_THREAD = {"TF_NUM_INTRAOP_THREADS": "1", "TF_NUM_INTEROP_THREADS": "1"}


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for each training. All are made in one job, because a job takes long to start."""
    folder = tmp_path_factory.mktemp("recordings")
    finished = launch([SCRIPTS / "slowed_down.py", folder, *TRAININGS], 2, timeout=300, env=ONE_THREAD).check()
    assert f"rank 1 has trained {len(TRAININGS)} times" in finished.output
    return folder


def found_in(recording: Path, *rules: str) -> list[Finding]:
    """The findings of these rules, each of which has one. On a machine that was not busy no other rule has any."""
    findings = diagnose(recording).findings
    found = {each.rule: each for each in findings}
    assert len(found) == len(findings)
    busy = found.pop(oversubscribed_cores.name, None)
    assert set(found) - set(rules) == set() or (busy is not None and busy.case == "others"), (found, busy)
    return [found[rule] for rule in rules]


def test_a_sleeping_map(recordings: Path) -> None:
    [loader] = found_in(recordings / "map", "Dataloader")
    assert loader.case == "idle"
    assert loader.figures["share"] > 30


def test_a_throttled_file(recordings: Path) -> None:
    [bottleneck] = found_in(recordings / "file", "IOBottleneck")
    assert 1 < bottleneck.figures["rate"] < 8
    assert bottleneck.figures["disks"] < 1  # it has just been written, and comes from the page cache


def test_a_slow_rank(recordings: Path) -> None:
    [late] = found_in(recordings / "rank", "LateRank")
    assert (late.rank, late.case) == (1, "computation")
    (late,) = diagnose(recordings / "rank", [late_rank(threshold=50)]).findings  # by more than a busy machine makes it
    first, last = late.figures["since"]
    assert first <= 30 <= last <= first + 10
    assert 80 < late.figures["mine"] - late.figures["others"] < 160
    assert late.figures["wait"] > late.figures["exposed"] + 50


def test_a_long_first_step(recordings: Path) -> None:
    """Of 1 s, for a threshold of 0.9 s; with the published one there is nothing to find."""
    assert found_in(recordings / "first+long") == []
    (late,) = diagnose(recordings / "first+long", [max_initialization_time(threshold=0.015)]).findings
    assert late.figures["seconds"] > 1


def test_one_long_step_in_fifty(recordings: Path) -> None:
    """Of a short training: two of them are enough here."""
    (outlier,) = diagnose(recordings / "first+long", [step_outlier(n_outliers=1)]).findings
    assert outlier.rank == 0
    assert outlier.step in (18, 19, 20)  # short steps are noted together
    assert outlier.figures["count"] == 2
    assert re.search("mostly (48|49|50|51|52) apart", outlier.evidence)
    assert "rank 0 computes longer" in outlier.evidence


def test_busy_cores(recordings: Path) -> None:
    (hogged,) = diagnose(recordings / "hog", [oversubscribed_cores]).findings
    assert hogged.case == "others"
    assert hogged.figures["runnable"] > 1.5 * hogged.figures["cores"]
    assert hogged.figures["others"] > hogged.figures["ours"]


def test_two_faults_at_once(recordings: Path) -> None:
    late, _ = found_in(recordings / "rank+file", "LateRank", "IOBottleneck")
    assert late.rank == 1
