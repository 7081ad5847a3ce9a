"""Who takes part: which environment each candidate runs in, and how its ranks are started."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.cases import STEPS

__all__ = ["CANDIDATES", "HOROVOD_LAUNCHER", "OPEN_MPI", "ROOT_MPI", "Candidate", "not_installed"]

ROOT = Path(__file__).parent.parent
ENVIRONMENTS = ROOT / ".bench"
OPEN_MPI_FLAGS = ("--oversubscribe", "--bind-to", "none")


@dataclass(frozen=True)
class Candidate:
    """One way to reduce, in an environment of its own.

    Attributes:
        name: for tables and results.
        backend: of `benchmarks.backends`.
        doors: the kinds of case it can do.
        environment: folder under .bench/ made by envs.sh; empty for the interpreter that runs this.
        launcher: command that starts the ranks, "{ranks}" filled in; empty: they are started one by one.
        variables: more environment variables.
        runs: arguments of Python that run a module.
        worker: the module.
        stops: whether its ranks may be stopped between calls; not where they watch each other by heartbeats.
    """

    name: str
    backend: str
    doors: tuple[str, ...]
    environment: str = ""
    launcher: tuple[str, ...] = ()
    variables: dict[str, str] = field(default_factory=dict)
    runs: tuple[str, ...] = ("-m",)
    worker: str = "benchmarks.worker"
    stops: bool = True

    @property
    def python(self) -> Path:
        return ENVIRONMENTS / self.environment / "bin" / "python" if self.environment else Path(sys.executable)

    @property
    def installed(self) -> bool:
        return not self.environment or (ENVIRONMENTS / self.environment / "ready").exists()

    def command(self, ranks: int) -> list[str]:
        """What starts all ranks (with a launcher) or one of them."""
        launcher = [part.format(ranks=ranks, bin=self.python.parent) for part in self.launcher]
        return [*launcher, str(self.python), *self.runs, self.worker, self.backend]


_TF_DOORS = ("function", "list", "named", "grouped", *STEPS)
ROOT_MPI = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"} if os.geteuid() == 0 else {}
OPEN_MPI = ("{bin}/mpirun", *OPEN_MPI_FLAGS, "-np", "{ranks}")
HOROVOD_LAUNCHER = ("/usr/bin/mpirun", *OPEN_MPI_FLAGS, "-np", "{ranks}")
_QUIET_TF = {"TF_CPP_MIN_LOG_LEVEL": "2"}

CANDIDATES = {
    candidate.name: candidate
    for candidate in (
        Candidate("smddp_tf", "smddp", ("array", "eager", "plus", *_TF_DOORS), "", OPEN_MPI, {**ROOT_MPI, **_QUIET_TF}),
        Candidate(
            "copied tensors",
            "smddp",
            _TF_DOORS,
            "",
            OPEN_MPI,
            {**ROOT_MPI, **_QUIET_TF, "SMDDP_SHARED_TENSORS": "0"},
        ),
        Candidate("reference", "reference", ("array",)),
        Candidate("one pass", "bound", ("array",)),
        Candidate("Open MPI 5", "mpi", ("array",), "", OPEN_MPI, ROOT_MPI),
        Candidate("MPICH", "mpi", ("array",), "mpich", ("{bin}/mpiexec", "-n", "{ranks}")),
        Candidate("Intel MPI", "mpi", ("array",), "intel", ("{bin}/mpiexec", "-n", "{ranks}")),
        Candidate(
            "oneCCL", "oneccl", ("array",), "intel", ("{bin}/mpiexec", "-n", "{ranks}"), {"CCL_LOG_LEVEL": "error"}
        ),
        Candidate("gloo", "gloo", ("array",), "torch"),
        Candidate(
            "Horovod",
            "horovod",
            _TF_DOORS,
            "horovod",
            HOROVOD_LAUNCHER,
            {**ROOT_MPI, **_QUIET_TF, "HOROVOD_CPU_OPERATIONS": "MPI", "LD_LIBRARY_PATH": ""},
        ),
    )
}


def not_installed() -> list[str]:
    """Candidates whose environment is missing; `make bench-peers` and `make bench-horovod` make them."""
    return [name for name, candidate in CANDIDATES.items() if not candidate.installed]
