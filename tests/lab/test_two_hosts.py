"""`smddprun -H node0:1,node1:1`: two hosts with a network between them. Run by `make test-lab`."""

from __future__ import annotations

import re
from pathlib import Path

from benchmarks.lab import SCRIPT, Lab
from tests.support.mpirun import ROOT, SCRIPTS

RANKS = SCRIPTS / "ranks_without_tensorflow.py"
# What stands in for ssh: under Open MPI 5 (PRRTE), as parameters of mpirun.
AGENT = f"--prtemca plm_ssh_agent {SCRIPT.resolve().parent / 'agent.sh'}"


def smddprun(lab: Lab, *arguments: str | Path, hosts: str = "node0:1,node1:1") -> tuple[int, str]:
    return lab.execute(0, "python", "-m", "smddp_tf.run", "-H", hosts, "--mpi-args", AGENT, *arguments)


def test_ranks_on_two_hosts_reduce(lab: Lab) -> None:
    code, output = smddprun(lab, "-x", "GIVEN=yes", RANKS, "sum")
    assert code == 0, output
    for rank in range(2):
        assert f"[{rank}]<stdout>: rank {rank} of 2: [3.0, 3.0, 3.0] 0\n" in output  # both are the first on their host
        assert f"[{rank}]<stderr>: threshold None yes\n" in output


def test_ranks_know_where_to_meet(lab: Lab) -> None:
    tell = "import os; print('told', *(os.environ[f'MASTER_{name}'] for name in ('ADDR', 'PORT')))"
    for hosts, address in (("node0:1,node1:1", r"10\.77\.0\.1"), ("node1:1,node0:1", "node1")):
        code, output = smddprun(lab, "python", "-c", tell, hosts=hosts)
        assert code == 0, output
        (first, second) = re.findall(rf"told ({address} \d+)\n", output)
        assert first == second


def test_training_on_two_hosts(lab: Lab, tmp_path: Path) -> None:
    example = ROOT / "examples" / "02_keras_digits.py"
    code, output = smddprun(
        lab, example, "--epochs", "1", "--min-accuracy", "0.5", "--checkpoint", tmp_path / "digits.keras"
    )
    assert code == 0, output
    assert "equal weights on all 2 rank(s)" in output


def test_a_rank_that_fails_on_the_other_host(lab: Lab) -> None:
    code, output = smddprun(lab, RANKS, "fail")
    assert code == 7, output
    assert "smddprun: rank 1 on node1 ended with exit code 7" in output
    assert output.rstrip().splitlines()[-1] == "ValueError: rank 1 is broken"


def test_nothing_is_left_on_the_other_host(lab: Lab) -> None:
    code, output = lab.execute(
        0, "timeout", "-s", "TERM", "15", "python", "-m", "smddp_tf.run", "-H", "node0:1,node1:1", "--mpi-args", AGENT,
        RANKS, "wait",
    )  # fmt: skip
    processes = [int(number) for number in re.findall(r"process (\d+)", output)]
    assert len(processes) == 2, output
    assert code == 124, output
    for process in processes:  # the nodes share this machine's process numbers
        command = Path(f"/proc/{process}/cmdline")
        assert not command.exists() or b"ranks_without_tensorflow" not in command.read_bytes()


def test_a_host_that_does_not_answer(lab: Lab) -> None:
    code, output = smddprun(lab, "--start-timeout", "8", RANKS, "sum", hosts="node0:1,node7:1")
    assert code != 0
    assert "node7" in output
