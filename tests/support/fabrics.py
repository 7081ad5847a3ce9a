"""Open MPI's messaging layers besides its own for TCP and shared memory, as users choose them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from tests.support.mpirun import find_mpirun

__all__ = ["FABRICS", "why_not"]

# Variables, which `mpirun --mca` sets for the ranks. `tcp;ofi_rxm` is libfabric's provider for TCP, which Open MPI
# leaves out unless it is named.
FABRICS = {
    "ofi": {
        "OMPI_MCA_pml": "cm",
        "OMPI_MCA_mtl": "ofi",
        "OMPI_MCA_opal_common_ofi_provider_include": "tcp;ofi_rxm",
    },
    "ucx": {"OMPI_MCA_pml": "ucx", "OMPI_MCA_pml_ucx_tls": "any", "OMPI_MCA_pml_ucx_devices": "any"},
}
_COMPONENTS = {"ofi": "mca:mtl:ofi:", "ucx": "mca:pml:ucx:"}


def why_not(fabric: str) -> str:
    """Why the installed MPI cannot use it; empty when it can."""
    ompi_info = shutil.which("ompi_info", path=str(Path(find_mpirun()).parent))
    if ompi_info is None:
        return "this MPI is not Open MPI, or has no ompi_info"
    parts = subprocess.run([ompi_info, "--parsable"], capture_output=True, text=True, check=True).stdout
    return "" if _COMPONENTS[fabric] in parts else f"this Open MPI was built without {fabric}"
