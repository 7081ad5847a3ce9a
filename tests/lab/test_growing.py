"""A host of the lab that appears and is lost while a job runs. Run by `make test-lab`."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from benchmarks.lab import SCRIPT, Lab
from tests.lab.test_starters import SSH
from tests.support.mpirun import SCRIPTS

PATIENCE = 90.0
SLACK = 1.5  # of a busy machine


def rounds_of(folder: Path) -> dict[int, list[tuple[int, int, int]]]:
    """Rank, size and local rank of each round, by process."""
    found = {}
    for log in folder.glob("log.*"):
        begun = [line.split() for line in log.read_text().splitlines() if line.startswith("begin ")]
        found[int(log.suffix[1:])] = [(int(rank), int(size), int(local)) for _, _, rank, size, local, _ in begun]
    return found


def await_rounds(folder: Path, *wanted: tuple[int, int, int]) -> dict[tuple[int, int, int], int]:
    """Waits until these are the last rounds of processes; returns which."""
    give_up_at = time.monotonic() + PATIENCE
    while True:
        last = {rounds[-1]: process for process, rounds in rounds_of(folder).items() if rounds}
        if set(wanted) <= set(last):
            return last
        assert time.monotonic() < give_up_at, rounds_of(folder)
        time.sleep(0.05)


def processes_of(node: int, word: str) -> list[int]:
    shown = subprocess.run(["ip", "netns", "pids", f"lab{node}"], capture_output=True, text=True, check=True).stdout
    lines = {int(number): Path(f"/proc/{number}/cmdline").read_bytes() for number in shown.split()}
    return [number for number, line in lines.items() if word.encode() in line]


def await_text(output: Path, words: str) -> None:
    give_up_at = time.monotonic() + PATIENCE
    while words not in output.read_text(errors="replace"):
        assert time.monotonic() < give_up_at, output.read_text(errors="replace")
        time.sleep(0.02)


@pytest.mark.parametrize("loses", ["host", "ssh"])
def test_a_host_comes_and_is_lost(lab: Lab, tmp_path: Path, loses: str) -> None:
    """Its ranks join over the network, and the first host's go on in place without them."""
    ssh, hosts, script = tmp_path / "ssh", tmp_path / "hosts", SCRIPTS / "elastic_ranks.py"
    said = tmp_path / "said"
    ssh.write_text(SSH.format(script=SCRIPT.resolve()))
    ssh.chmod(0o755)
    hosts.write_text("node0:2\n")
    flags = f"--no-mpi --host-discovery-script 'cat {hosts}' --commit-dir {tmp_path / 'commits'}"
    words = f"python -m smddp_tf.run {flags} python {script} {tmp_path} 3000 0.05"
    program = f'PATH="{tmp_path}:$PATH" exec {words} > {said} 2>&1'
    with ThreadPoolExecutor(1) as pool:
        job = pool.submit(lab.execute, 0, "sh", "-c", program)
        try:
            first = await_rounds(tmp_path, (0, 2, 0), (1, 2, 1))
            hosts.write_text("node0:2\nnode1:2\n")
            four = await_rounds(tmp_path, *((rank, 4, rank % 2) for rank in range(4)))
            assert [four[rank, 4, rank] for rank in (0, 1)] == [first[rank, 2, rank] for rank in (0, 1)]
            starters = processes_of(1, "on_host(what)")
            assert len(processes_of(1, str(script))) >= 2
            hosts.write_text("node0:2\n")
            begun = time.monotonic()
            if loses == "host":  # no word comes from there, and what stands in for ssh goes on
                lab.control("cut", 1)
                await_text(said, " error: No answer from ranks 2, 3 (host node1) for ")
                noticed = time.monotonic() - begun
            else:
                for process in starters:
                    os.kill(process, signal.SIGKILL)
            two = await_rounds(tmp_path, (0, 2, 0), (1, 2, 1))
            goes_on = time.monotonic() - begun
            print(f"{loses}: goes on after {goes_on:.1f} s")
            if loses == "host":
                print(f"the error came after {noticed:.1f} s")
                assert noticed < 3.0 + SLACK
                assert goes_on < 6.0 + SLACK
            assert [two[rank, 2, rank] for rank in (0, 1)] == [first[rank, 2, rank] for rank in (0, 1)]
        finally:
            (tmp_path / "hurry").touch()
            if loses == "host":
                lab.control("heal", 1)
            for process in processes_of(1, str(script)):
                os.kill(process, signal.SIGKILL)
        code, _ = job.result()
    output = said.read_text(errors="replace")
    assert code == 0, output
    ends = [line for log in tmp_path.glob("log.*") for line in log.read_text().splitlines() if line.startswith("end")]
    assert ends == ["end 3000 2 equal"] * 2, output
