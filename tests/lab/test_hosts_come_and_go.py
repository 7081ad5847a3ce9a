"""Hosts of the lab that appear and vanish all the time, by turns without a word and with one. Run by `make test-lab`.

SMDDP_TEST_SECONDS: how long; with 600 a host appears, or vanishes, every 20 s.
"""

from __future__ import annotations

import os
import signal
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from benchmarks.lab import SCRIPT, Lab, why_not
from tests.lab.test_growing import await_rounds, processes_of
from tests.lab.test_starters import SSH
from tests.support.mpirun import SCRIPTS

SECONDS = float(os.environ.get("SMDDP_TEST_SECONDS", "50"))
PERIOD = min(20.0, SECONDS / 6)
BATCH = 0.05  # seconds
PROGRAM = SCRIPTS / "elastic_ranks.py"


def vanish(lab: Lab, node: int, silently: bool, folder: Path) -> float:
    """Takes the node out of the network, or kills its ranks; returns the seconds until the other one trains alone."""
    begun = time.monotonic()
    if silently:
        lab.control("cut", node)
    for process in [] if silently else processes_of(node, "on_host(what)"):
        os.kill(process, signal.SIGKILL)
    await_rounds(folder, (0, 1, 0))
    seconds = time.monotonic() - begun
    for process in processes_of(node, "python"):
        os.kill(process, signal.SIGKILL)
    if silently:
        lab.control("heal", node)
    return seconds


def batches_per_second(order: str, until_ns: int) -> float:
    """Of the first session, from its first commit on. `order`: see elastic_ranks.py."""
    commits = [(int(line[0]), int(line[2])) for line in map(str.split, order.splitlines()) if line[1] == "commit"]
    alone = [commit for commit in commits if commit[0] < until_ns]
    return (alone[-1][1] - alone[0][1]) / (alone[-1][0] - alone[0][0]) * 1e9


def test_hosts_come_and_go(tmp_path: Path) -> None:
    if reason := why_not():
        pytest.skip(f"no hosts here: {reason}")
    ssh, hosts, said, batches = tmp_path / "ssh", tmp_path / "hosts", tmp_path / "said", int(SECONDS / BATCH)
    ssh.write_text(SSH.format(script=SCRIPT.resolve()))
    ssh.chmod(0o755)
    hosts.write_text("node0:1\n")
    flags = f"--no-mpi --host-discovery-script 'cat {hosts}' --commit-dir {tmp_path / 'commits'}"
    words = f"python -m smddp_tf.run {flags} python {PROGRAM} {tmp_path} {batches} {BATCH}"
    joined: list[float] = []
    lost: dict[bool, list[float]] = {True: [], False: []}
    with Lab(3, 1000, seconds=SECONDS + 300) as lab, ThreadPoolExecutor(1) as pool:
        job = pool.submit(lab.execute, 0, "sh", "-c", f'PATH="{tmp_path}:$PATH" exec {words} > {said} 2>&1')
        first = await_rounds(tmp_path, (0, 1, 0))[0, 1, 0]
        begun = time.monotonic()
        time.sleep(PERIOD)
        undisturbed_until = time.monotonic_ns()
        for turn in range(round(SECONDS / (2 * PERIOD)) - 1):
            node, silently = 1 + turn // 2 % 2, turn % 2 == 0
            hosts.write_text(f"node0:1\nnode{node}:1\n")
            asked = time.monotonic()
            await_rounds(tmp_path, (0, 2, 0))
            joined.append(time.monotonic() - asked)
            time.sleep(max(0.0, asked + PERIOD - time.monotonic()))
            hosts.write_text("node0:1\n")
            vanished = time.monotonic()
            lost[silently].append(vanish(lab, node, silently, tmp_path))
            time.sleep(max(0.0, vanished + PERIOD - time.monotonic()))
        (tmp_path / "hurry").touch()
        at_the_end = time.monotonic()
        code, _ = job.result()
    assert code == 0, said.read_text(errors="replace")
    assert [line for line in (tmp_path / f"log.{first}").read_text().splitlines() if line.startswith("end")] == [
        f"end {batches} 1 equal"
    ]
    order = (tmp_path / "order").read_text()
    commits = [line.split() for line in order.splitlines() if " commit " in line]
    done = max(int(batch) for at, _, batch in commits if int(at) < at_the_end * 1e9)
    ratio = done / (batches_per_second(order, undisturbed_until) * (at_the_end - begun))
    median = {silently: statistics.median(seconds) for silently, seconds in lost.items() if seconds}
    print(f"{len(joined)} hosts came and went in {at_the_end - begun:.0f} s. Effective training time: {ratio:.3f}.")
    print(f"From the hosts' file to a session with the host: {statistics.median(joined):.1f} s, of {max(joined):.1f}.")
    print(f"From a loss to the next session: {median.get(True, 0):.1f} s (cut), {median.get(False, 0):.2f} s (killed).")
