"""A rank that does not come: who is missing, in what, where it is, and in the end an error."""

from __future__ import annotations

import math
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.mpirun import Finished, launch
from tests.support.recorder import read_records

pytestmark = pytest.mark.launches

RANKS = 2
# Horovod's names.
FIRST_SECONDS = 0.25  # before a wait is told in a job without limits
# A wait is told after 0.6, 1.2 and 2.4 s; by the last time the ranks have been asked again how they are.
LIMITS = {"HOROVOD_STALL_CHECK_TIME_SECONDS": "0.6", "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "3.5"}


@pytest.fixture(scope="module")
def stalled(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, dict[str, str]]]:
    """What the job printed, and what rank 0 recorded. The limit was set: it ends what waits."""
    folder: Path = tmp_path_factory.mktemp("stalled")
    finished = launch([Path(__file__).with_name("stalled.py"), folder], RANKS, timeout=120, env=LIMITS)
    assert not finished.timed_out, finished.output
    return finished.output, read_records(folder, RANKS)[0]


def test_named_operation(stalled: tuple[str, dict[str, dict[str, str]]]) -> None:
    output, records = stalled
    waits = r"warning: allreduce 'the second one' has waited for \d+ s: submitted by 1 of 2 ranks, missing on rank 1\."
    assert re.search(waits, output), output
    where = r"Rank 1 \(host \S+\) is in its own program and in no collective; the last one, allreduce 'the first one',"
    assert re.search(f"warning: {where}", output), output
    assert "missing on rank 1" in records["named"]["message"]
    assert re.search(where, records["named"]["message"]), records


def test_planned_operation(stalled: tuple[str, dict[str, dict[str, str]]]) -> None:
    output, records = stalled
    assert re.search(r"warning: gradient bucket 0 of 'train' has been under way for \d+ s: .*for rank 1\n", output), (
        output
    )
    behind = r"Rank 1 \(host \S+\) .* It has begun 1 of the 2 reductions of plan 'train' .* that rank 0 has\."
    assert re.search(f"warning: {behind}", output), output
    assert "did not finish within" in records["planned"]["message"]
    assert re.search(behind, records["planned"]["message"]), records


def test_deadlock_is_named(stalled: tuple[str, dict[str, dict[str, str]]]) -> None:
    output, records = stalled
    named = r"All 2 ranks wait in collectives, each for a call that another rank has not made: a deadlock, unless"
    assert re.search(f"warning: {named}", output), output
    where = r"Rank 1 \(host \S+\) has waited in allreduce 'of rank 1 only' for \d+ s\."
    assert re.search(f"warning: {where}", output), output
    assert "missing on rank 1" in records["crossed"]["message"]


def test_healthy_job_goes_on() -> None:
    """Without a limit a wait is told again each time that it has lasted twice as long, and nothing ends."""
    finished = launch(
        [Path(__file__).with_name("late.py")], RANKS, timeout=120, env={"SMDDP_STALL_WARN_SECONDS": str(FIRST_SECONDS)}
    ).check()
    assert finished.output.count("all came") == RANKS
    for name in ("after its own program", "after a part of a step"):
        told = [int(said) for said in re.findall(rf"allreduce '{name}' has waited for (\d+) s", finished.output)]
        assert 2 <= len(told) <= 2 + math.log2(finished.seconds / FIRST_SECONDS), finished.output
        assert sorted(told) == told
    assert "a deadlock" not in finished.output
    assert "in no collective; the last one, allgather 'hvd.init', ended there" in finished.output


@pytest.mark.parametrize("what", ["join", "init"])
def test_a_rank_that_does_not_come_to_it(tmp_path: Path, what: str) -> None:
    """It is named, and the job ends: the ranks that waited do not wait for it in MPI as well."""
    finished = launch([Path(__file__).with_name("left_alone.py"), tmp_path, what], 3, timeout=120, env=LIMITS)
    assert not finished.timed_out, finished.output
    assert finished.returncode != 0, finished.output
    records = read_records(tmp_path, 3)
    for rank in (0, 2):
        assert records[rank][what]["reason"] == "timed_out", records
    if what == "init":
        assert all("missing on rank 1." in records[rank]["init"]["message"] for rank in (0, 2)), records
        return
    assert re.search(r"warning: hvd\.join has waited for \d+ s: not every rank has called it", finished.output)
    assert re.search(r"Rank 1 \(host \S+\) is in its own program and in no collective", records[0]["join"]["message"])


TOLD = {
    "gradients": [
        "broadcast 'eager.broadcast_variables'",
        "broadcast 'broadcast_object.length'",
        "allgather 'allgather_object'",
    ],
    "requests": [],
    "fit": ["allgather 'model.fit (before the first batch)'"],
}


@pytest.fixture(scope="module")
def late_starts() -> dict[str, Finished]:
    """The jobs that wait, all at the same time."""
    with ThreadPoolExecutor() as pool:
        script = Path(__file__).with_name("late_start.py")
        jobs = {program: pool.submit(launch, [script, program], RANKS, timeout=150) for program in TOLD}
        return {program: job.result() for program, job in jobs.items()}


@pytest.mark.parametrize("program", TOLD)
def test_a_late_rank_is_told_soon_while_a_program_starts(late_starts: dict[str, Finished], program: str) -> None:
    """Once for each operation that waited for 5 s, and not any more when it trains or has made many requests."""
    finished, told = late_starts[program].check(), TOLD[program]
    assert finished.output.count("all came") == RANKS
    lines = [line for line in finished.output.splitlines() if " has waited for " in line or "`fit` has not" in line]
    assert len(lines) == len(told), finished.output
    for line, name in zip(lines, told):
        assert line.startswith(f"smddp_tf [rank 0] warning: {name}"), line
        assert re.search(" has waited for [5-7] s: submitted by 1 of 2 ranks, missing on rank 1. ", line), line
    assert finished.output.count("warning: ") == len(told), finished.output
