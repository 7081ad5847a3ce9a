"""`smddprun --check-build`, in horovodrun's layout. Loads neither TensorFlow nor the native code."""

from __future__ import annotations

import importlib
import importlib.metadata
from pathlib import Path

from smddp_tf.run.mpi import kind_of_library

__all__ = ["build_report", "version"]

_PACKAGE = Path(__file__).resolve().parent.parent


def version() -> str:
    """The version of smddp_tf, of its build where it is not installed."""
    try:
        return importlib.metadata.version("smddp-tf")
    except importlib.metadata.PackageNotFoundError:
        return str(getattr(_build_info(), "VERSION", "unknown"))


def build_report() -> str:
    """What is built, as a list of checkboxes."""
    info = _build_info()
    tensorflow = getattr(info, "TENSORFLOW_VERSION", "")
    library = getattr(info, "MPI_LIBRARY", "")
    mpi = f"MPI ({kind_of_library(library)}: {library})" if library else "MPI"
    built = bool(library) and any(_PACKAGE.glob("_core.*.so"))
    with_ops = bool(tensorflow) and (_PACKAGE / "libsmddp_tf_ops.so").exists()
    with_xla = with_ops and (_PACKAGE / "libsmddp_tf_xla.so").exists()
    sections = {
        "Available Frameworks": [(f"TensorFlow {tensorflow}".strip(), with_ops), ("PyTorch", False), ("MXNet", False)],
        "Available Controllers": [(mpi, built), ("Gloo", False)],
        "Available Tensor Operations": [
            ("CUDA", False), ("NCCL", False), ("DDL", False), ("CCL", False), ("MPI", built), ("Gloo", False),
            ("shared memory", built), ("XLA", with_xla),
        ],
    }  # fmt: skip
    lines = [f"smddp_tf v{version()}:"]
    for title, entries in sections.items():
        lines += ["", f"{title}:", *(f"    [{'X' if there else ' '}] {name}" for name, there in entries)]
    return "\n".join(lines)


def _build_info() -> object:
    try:
        return importlib.import_module("smddp_tf._build_info")
    except ImportError:
        return None
