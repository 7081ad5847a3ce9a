"""Commands in the environment of `make clients`, and what became of a client."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / ".clients"
SCRIPTS = Path(__file__).resolve().parent / "scripts"
# What a launcher or a user's shell may have left behind.
_FOREIGN = (
    *("PYTHON", "VIRTUAL_ENV", "MAKE", "KERAS_", "SMDDP_", "HOROVOD_"),
    *("OMPI_", "PMIX_", "PMI_", "PRTE_", "SLURM_"),
)
_VARIABLES = {
    "CUDA_VISIBLE_DEVICES": "",
    "OMP_NUM_THREADS": "1",
    "TF_CPP_MIN_LOG_LEVEL": "2",
    "TF_ENABLE_ONEDNN_OPTS": "0",
    "TF_NUM_INTEROP_THREADS": "1",
    "TF_NUM_INTRAOP_THREADS": "1",
    "DP_INFER_BATCH_SIZE": "1024",
    # Every reduction's result is compared between the ranks; a difference is an error.
    "SMDDP_VERIFY": "1",
}


class Failed(Exception):
    """A client did not do what it should have done. Its first line is for the table."""


@dataclass(frozen=True)
class Result:
    """A row of the table: what ran with which client, and how far it was from one process (a relative difference)."""

    client: str
    ran: str
    difference: float | None = None
    most: float | None = None
    problem: str = ""

    @property
    def ok(self) -> bool:
        return not self.problem and (self.difference is None or self.difference <= (self.most or 0))


def run(command: str, where: Path, seconds: float = 300, variables: Mapping[str, str] | None = None) -> str:
    """Runs a shell line in the environment and returns what it printed.

    Raises:
        Failed: it ended with an error, or not in time; it and what it started are gone then.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_FOREIGN)}
    path = f"{FOLDER / 'bin'}{os.pathsep}{kept.get('PATH', '')}"
    with tempfile.TemporaryFile() as printed:
        process = subprocess.Popen(
            ["bash", "-c", command],
            cwd=where,
            env={**kept, **_VARIABLES, **(variables or {}), "PATH": path},
            stdin=subprocess.DEVNULL,
            stdout=printed,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            how = f"ended with {process.wait(seconds)}"
        except subprocess.TimeoutExpired:
            how = f"did not end within {seconds:g} s"
            _end(process)
        printed.seek(0)
        output = printed.read().decode(errors="replace")
    if how != "ended with 0":
        raise Failed(f"`{command}` {how}.\n{output}")
    return output


def _end(process: subprocess.Popen[bytes]) -> None:
    """Asks the command to end, as horovodrun does with its ranks within 30 s, and kills it otherwise."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, sign)
            process.wait(40)
            return
        except subprocess.TimeoutExpired:
            continue
