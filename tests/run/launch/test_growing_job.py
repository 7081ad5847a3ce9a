"""Jobs without MPI go on in place without the ranks that they lose, and with ranks on hosts that appear."""

from __future__ import annotations

import os
import re
import signal
import sys
from pathlib import Path

import pytest

from tests.elastic.test_recovery import BATCHES, DEATH, lines_of
from tests.run.launch.growing import SCRIPT, Growing
from tests.support.mpirun import launch

pytestmark = pytest.mark.launches


def smddprun(*arguments: str | Path, timeout: float = 60, **env: str):
    return launch(["-m", "smddp_tf.run", "--no-mpi", *arguments], ranks=None, timeout=timeout, env=env)


def test_survivors_keep_their_process(tmp_path: Path) -> None:
    """The last of three ranks is killed; the others go back to the last commit, with new numbers."""
    job = ("--elastic", "--min-np", "2", "-np", "3", "--commit-dir", tmp_path / "commits")
    done = smddprun(*job, SCRIPT, tmp_path, str(BATCHES), "0", str(DEATH)).check()
    assert len(list(tmp_path.glob("log.*"))) == 3
    assert lines_of(tmp_path, "begin") == [["0", str(rank), "3", str(rank), "3"] for rank in range(3)] + [
        ["6", str(rank), "2", str(rank), "2"] for rank in range(2)
    ]
    assert lines_of(tmp_path, "end") == [["12", "2", "equal"]] * 2
    assert "goes on with 2 ranks: without process 2, which was killed by signal 9." in done.output
    assert "starts again" not in done.output


def test_below_the_least_number_it_starts_again(tmp_path: Path) -> None:
    job = ("--elastic", "-np", "2", "--commit-dir", tmp_path / "commits")
    done = smddprun(*job, SCRIPT, tmp_path, str(BATCHES), "0", str(DEATH)).check()
    assert len(list(tmp_path.glob("log.*"))) == 4
    assert lines_of(tmp_path, "end") == [["12", "2", "equal"]] * 2
    assert "The job ends: of the ranks 1 are left, and the job needs 2 (--min-np)." in done.output
    assert f"starts again with 2 ranks, from commit 2 in {tmp_path / 'commits'}" in done.output


def test_ranks_come_and_go(tmp_path: Path) -> None:
    """New ones join at a commit, with the state of the first, whose process stays; by turns with losses."""
    with Growing(tmp_path, 1, 600) as job:
        first = job.await_ranks(1)[0]
        job.show(3)
        three = job.await_ranks(3)
        assert three[0] == first
        os.kill(three[1], signal.SIGKILL)
        two = job.await_ranks(2, apart_from=three[1])
        assert two == {0: first, 1: three[2]}
        job.await_shown(2)
        job.show(3)
        again = job.await_ranks(3)
        assert (again[0], again[1]) == (first, three[2])
        os.kill(first, signal.SIGKILL)  # rank 0 has the state; the next one has it too
        assert job.await_ranks(2, apart_from=first) == {0: again[1], 1: again[2]}
        job.check(2)
        assert "starts again" not in job.output()
        began = [batch for batch, *_ in job.begun()[again[2]]]
        assert min(began) > 0


def test_too_few_ranks_wait_for_a_host(tmp_path: Path) -> None:
    """Without --min-np the job needs all. The slot of the lost rank counts again when the script has named fewer."""
    with Growing(tmp_path, 2, 600) as job:
        first, second = (job.await_ranks(2)[rank] for rank in range(2))
        os.kill(first, signal.SIGKILL)
        job.await_that(lambda: "waits 600 s for hosts: of the ranks 1 are left" in job.output())
        job.await_shown(1)
        job.show(2)
        assert job.await_ranks(2, apart_from=first)[0] == second
        job.check(2)


def test_a_stopped_rank_is_left_out(tmp_path: Path) -> None:
    with Growing(tmp_path, 3, 600, "--min-np", "1", SMDDP_HEARTBEAT_TIMEOUT="3") as job:
        stopped = job.await_ranks(3)[1]
        os.kill(stopped, signal.SIGSTOP)
        job.await_ranks(2, apart_from=stopped)
        job.check(2)
        assert "without process " in job.output()


DIES_IN_A_ROUND = """
import os, pathlib, signal, sys, time
from smddp_tf.rendezvous import rounds
number, folder, script = int(os.environ["SMDDP_RUN_NUMBER"]), pathlib.Path(sys.argv[1]), sys.argv[2]
if number == 2:
    join = rounds.join
    def join_and_die(environment):
        while not (folder / "failed").exists():
            time.sleep(0.02)
        join(environment)
        (folder / "hurry").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    rounds.join = join_and_die
if number == 3:
    (folder / "failed").touch()
    raise OSError("no driver")
sys.argv = [script, str(folder), "600", "0.1"]
exec(compile(open(script).read(), script, "exec"), {"__name__": "__main__"})
"""


def test_losses_of_those_that_come(tmp_path: Path) -> None:
    """One dies when its round is formed, another before it has joined. Neither ends the job, or harms the state."""
    program = tmp_path / "dies.py"
    program.write_text(DIES_IN_A_ROUND)
    (tmp_path / "hosts").write_text("localhost:4\n")
    script = ("--host-discovery-script", f"cat {tmp_path / 'hosts'}", "--commit-dir", tmp_path / "commits", "-np", "2")
    done = smddprun(*script, "--min-np", "1", sys.executable, program, tmp_path, SCRIPT, timeout=60).check()
    assert "process 3 on localhost has ended with exit code 1 before it had joined; the job goes on." in done.output
    assert "goes on with 3 ranks: with process 2 on localhost." in done.output
    assert "goes on with 2 ranks: without process 2, which was killed by signal 9." in done.output
    assert lines_of(tmp_path, "end") == [["600", "2", "equal"]] * 2


RUN = """
import os, pathlib, sys
from smddp_tf.run import run

folder = pathlib.Path(sys.argv[1])


def hosts():
    train = len(list(folder.glob("rank.*")))
    if train > 2:
        (folder / "hurry").touch()
    return {"localhost": 3 if train > 1 else 2}


def train(folder):
    import pathlib
    from tests.support.scripts import elastic_ranks
    import smddp_tf as hvd

    elastic_ranks.main(pathlib.Path(folder), 600, 0.1)
    return hvd.rank(), hvd.size(), os.getpid()


print(*run(train, (str(folder),), use_gloo=True, num_proc=2, max_num_proc=3, host_discovery_script=hosts))
"""


def test_a_function_names_the_hosts_of_a_job_from_python(tmp_path: Path) -> None:
    """The third rank comes while the first two train; the results are those of the last session, by rank."""
    job = launch(["-c", RUN, tmp_path], ranks=None, timeout=90).check()
    assert lines_of(tmp_path, "end") == [["600", "3", "equal"]] * 3
    found = re.findall(r"\((\d), (\d), (\d+)\)", job.output.splitlines()[-1])
    assert [(rank, size) for rank, size, _ in found] == [("0", "3"), ("1", "3"), ("2", "3")]
    assert {f"log.{process}" for *_, process in found} == {log.name for log in tmp_path.glob("log.*")}


@pytest.mark.parametrize(
    ("answer", "why"), [("['localhost']", "AttributeError"), ("{'a': 'many'}", "many"), ("1 / 0", "ZeroDivisionError")]
)
def test_a_function_that_names_no_hosts_is_an_error(answer: str, why: str) -> None:
    code = f"from smddp_tf.run import run\nrun(print, use_gloo=True, host_discovery_script=lambda: {answer})"
    job = launch(["-c", code], ranks=None, timeout=60)
    assert job.returncode == 1
    assert "must return the slots of each host, {'host1': 2}" in job.output
    assert why in job.output.splitlines()[-1]
