"""`smddprun --check-build`, in horovodrun's layout. Does not load TensorFlow."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path
from typing import Any

from smddp_tf._native import loader, prebuilt
from smddp_tf._native.tensorflow_import import build_info
from smddp_tf.run.launch.mpi import kind_of_library

_PACKAGE = Path(__file__).resolve().parents[2]


def version() -> str:
    """The version of smddp_tf, of its build where it is not installed."""
    try:
        return importlib.metadata.version("smddp-tf")
    except importlib.metadata.PackageNotFoundError:
        return build_info("VERSION") or "unknown"


def build_report(heading: str = "", names_only: bool = False) -> str:
    """Returns the features of the build as a list of checkboxes, with the reason where GPUs and NCCL cannot be used.

    Args:
        heading: the first line. Defaults to smddp_tf and its version.
        names_only: the checkboxes have Horovod's names without versions, for programs that look for them.
    """
    tensorflow = build_info("TENSORFLOW_VERSION") or ", ".join(prebuilt.minors())
    library = prebuilt.mpi_library()
    mpi = ("MPI", f"({kind_of_library(library)}: {library})" if library else "")
    built = bool(library) and any(_PACKAGE.glob("_core.*.so"))
    folder = _PACKAGE if build_info("TENSORFLOW_VERSION") else prebuilt.FOLDER
    with_ops = bool(tensorflow) and any(folder.glob("**/libsmddp_tf_ops.so"))
    with_xla = with_ops and any(folder.glob("**/libsmddp_tf_xla.so"))
    found = _found(built)
    sections = {
        "Available Frameworks": [(("TensorFlow", tensorflow), with_ops), (("PyTorch",), False), (("MXNet",), False)],
        "Available Controllers": [(mpi, built), (("Gloo",), False)],
        "Available Tensor Operations": [
            (_cuda(found), found["cuda"]), (_nccl(found), bool(found["nccl_version"])), (("DDL",), False),
            (("CCL",), False), (("MPI",), built), (("Gloo",), False), (("shared memory",), built), (("XLA",), with_xla),
        ],
    }  # fmt: skip
    lines = [heading or f"smddp_tf v{version()}:"]
    for title, entries in sections.items():
        shown = [(words[0] if names_only else " ".join(filter(None, words)), there) for words, there in entries]
        lines += ["", f"{title}:", *(f"    [{'X' if there else ' '}] {name}" for name, there in shown)]
    reasons = {"GPU": found["why_no_gpu"], "NCCL": found["why_no_nccl"] if found["cuda"] else ""}
    lines += [line for what, why in reasons.items() if why for line in ("", f"No {what}: {why}")]
    return "\n".join(lines)


def _found(built: bool) -> dict[str, Any]:
    """The engine's report on GPUs and NCCL on this machine (`_core.build_info`)."""
    try:
        if built:
            return dict(loader.core().build_info())
        why = "smddp_tf is not built."
    except ImportError as error:
        why = str(error)
    return {"cuda": False, "gpus": 0, "nccl_version": 0, "why_no_gpu": why, "why_no_nccl": ""}


def _cuda(found: dict[str, Any]) -> tuple[str, ...]:
    """`CUDA`, `13.0 (2 GPUs)`"""
    if not found["cuda"]:
        return ("CUDA",)
    name, _, number = str(found["cuda_platform"]).partition(" ")
    return name, f"{number} ({found['gpus']} GPU{'s' if found['gpus'] != 1 else ''})"


def _nccl(found: dict[str, Any]) -> tuple[str, ...]:
    """`NCCL`, `2.27.3`"""
    number = found["nccl_version"]
    return ("NCCL", f"{number // 10000}.{number // 100 % 100}.{number % 100}") if number else ("NCCL",)
