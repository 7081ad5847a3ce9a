"""Where a job runs: this machine with a /dev/shm of the job's own, or the nodes of the lab."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from benchmarks.lab import SCRIPT, Lab, why_not
from tests.faults.processes import Process
from tests.support.mpirun import ROOT, find_mpirun

__all__ = ["DISK_BYTES", "ELASTIC", "MPIRUN", "MPIRUN_ALONE", "SMDDPRUN", "Here", "InLab", "Launcher", "lab_is_missing"]

DISK_BYTES = 1 << 20


@dataclass(frozen=True)
class Launcher:
    """What starts a job: its words, and those that differ between one machine and several."""

    name: str
    words: tuple[str, ...]
    on_one_machine: tuple[str, ...] = ()
    elsewhere: tuple[str, ...] = ()


_FREE = ("--oversubscribe", "--bind-to", "none")
MPIRUN = Launcher("mpirun", (find_mpirun(),), _FREE, ("--bind-to", "none"))
# A launcher that leaves the other ranks alone when one has died, as srun does by default.
MPIRUN_ALONE = Launcher(
    "mpirun, continuous", (find_mpirun(), "--runtime-options", "continuous"), _FREE, ("--bind-to", "none")
)
SMDDPRUN = Launcher("smddprun", (sys.executable, "-m", "smddp_tf.run"))
# The others go on in place, without MPI.
ELASTIC = Launcher("smddprun --elastic", (*SMDDPRUN.words, "--no-mpi", "--elastic", "--min-np", "1"))

_IN_FOLDER = 'cd "$1"; shift; exec "$@"'


class Here:
    """This machine. As root the job gets a mount namespace with an empty /dev/shm and a small `folder`/disk."""

    nodes = 1
    name = "one machine"
    address = "127.0.0.1"  # of rank 0's host

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.private = os.geteuid() == 0
        (folder / "disk").mkdir()

    def __enter__(self) -> Here:
        self._holder = None
        if self.private:
            script = (
                "mount -t tmpfs -o size=2g job /dev/shm && "
                f"mount -t tmpfs -o size={DISK_BYTES} job '{self.folder}/disk' && echo ready && exec sleep 86400"
            )
            self._holder = subprocess.Popen(
                ["unshare", "-m", "--propagation", "private", "sh", "-c", script], stdout=subprocess.PIPE, text=True
            )
            if (self._holder.stdout.readline() if self._holder.stdout else "").strip() != "ready":
                raise RuntimeError("no mount namespace of its own for a job")
        self._before = set(_files(Path("/dev/shm")))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._holder is not None:
            self._holder.kill()
            self._holder.wait()

    @property
    def disk(self) -> Path:
        """The folder that can be filled."""
        assert self._holder is not None
        return Path(f"/proc/{self._holder.pid}/root{self.folder}/disk")

    def environment(self) -> dict[str, str]:
        return {}

    def words(self, launcher: Launcher, ranks: int, command: Sequence[str]) -> list[str]:
        """The whole line that runs `command` on `ranks` ranks."""
        inside = []
        if self._holder is not None:
            inside = ["nsenter", "-t", str(self._holder.pid), "-m", "sh", "-c", _IN_FOLDER, "sh", str(ROOT)]
        more = launcher.on_one_machine
        return [*inside, *launcher.words, "-np", str(ranks), *more, *command]

    def shared_memory(self) -> list[str]:
        """Files in the job's /dev/shm; without root, new ones of ours in everybody's."""
        if self._holder is not None:
            return _files(Path(f"/proc/{self._holder.pid}/root/dev/shm"))
        return [name for name in _files(Path("/dev/shm")) if name not in self._before and name.startswith("smddp")]


class InLab:
    """Nodes of the lab that is up."""

    name = "lab"
    address = "10.77.0.1"  # of node0, by the lab's script

    def __init__(self, lab: Lab, nodes: int) -> None:
        self.lab, self.nodes = lab, nodes
        self._run = Path(os.environ.get("LAB_RUN", Path(tempfile.gettempdir()) / "smddp_lab"))

    def __enter__(self) -> InLab:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for node in range(self.nodes):
            self.heal(node)

    def words(self, launcher: Launcher, ranks: int, command: Sequence[str]) -> list[str]:
        hosts = ",".join(f"node{node}:{ranks // self.nodes}" for node in range(self.nodes))
        inside = [
            "nsenter",
            "-t",
            str(self._holder(0)),
            "-n",
            "-u",
            "-m",
            "-i",
            "sh",
            "-c",
            _IN_FOLDER,
            "sh",
            str(ROOT),
        ]
        return [*inside, *launcher.words, *launcher.elsewhere, "-H", hosts, *command]

    def environment(self) -> dict[str, str]:
        """Tells Open MPI 4 and 5 how to reach the nodes, and by which network."""
        agent = str(SCRIPT.resolve().parent / "agent.sh")
        return {
            "LAB_RUN": str(self._run),
            "OMPI_MCA_plm_rsh_agent": agent, "OMPI_MCA_plm_rsh_no_tree_spawn": "1",
            "PRTE_MCA_plm_ssh_agent": agent, "PRTE_MCA_plm_ssh_no_tree_spawn": "1",
            "OMPI_MCA_oob_tcp_if_include": "eth0", "PRTE_MCA_prte_if_include": "eth0",
            "OMPI_MCA_btl_tcp_if_include": "eth0", "OMPI_MCA_pml": "ob1", "OMPI_MCA_mpi_yield_when_idle": "1",
        }  # fmt: skip

    def cut(self, node: int) -> None:
        self.lab.control("cut", node)

    def heal(self, node: int) -> None:
        self.lab.control("heal", node)

    def processes_of(self, node: int) -> list[Process]:
        """All of a node's but the one that keeps its namespaces."""
        shown = subprocess.run(["ip", "netns", "pids", f"lab{node}"], capture_output=True, text=True, check=True).stdout
        numbers = [int(word) for word in shown.split()]
        return [Process.of(number) for number in numbers if number != self._holder(node)]

    def shared_memory(self) -> list[str]:
        found = []
        for node in range(self.nodes):
            found += [f"node{node}:{name}" for name in _files(Path(f"/proc/{self._holder(node)}/root/dev/shm"))]
        return found

    def _holder(self, node: int) -> int:
        return int((self._run / f"{node}.pid").read_text())


def lab_is_missing() -> str:
    """Why there can be no lab here; empty when there can."""
    return why_not()


def _files(folder: Path) -> list[str]:
    try:
        return sorted(entry.name for entry in folder.iterdir())
    except OSError:
        return []
