"""The versions that must be the same on all ranks, and those to show. Nothing is imported to find them."""

from __future__ import annotations

import contextlib
import ctypes
import importlib.metadata
import os
import re
import sys

from smddp_tf._native.prebuilt import mpi_library

_DISTRIBUTIONS = {"TensorFlow": ("tensorflow", "tensorflow-cpu", "tf-nightly"), "Keras": ("keras", "keras-nightly")}


def facts() -> list[tuple[str, str]]:
    """Returns the versions to compare, each with the name of what has it.

    Of Python the minor version counts: what ranks send each other is pickled. Of the others, all but what a builder
    has added to the version (`2.21.0+nv24`).
    """
    found = [(what, _installed(names)) for what, names in _DISTRIBUTIONS.items()]
    return [("Python", f"{sys.version_info.major}.{sys.version_info.minor}"), *found]


def shown() -> dict[str, str]:
    """Returns the versions for a report, by name of the component."""
    by_name = {"smddp_tf": _installed(("smddp-tf",)), "python": sys.version.split()[0], "mpi": _mpi()}
    return by_name | {what.lower(): _installed(names) for what, names in _DISTRIBUTIONS.items()}


def _mpi() -> str:
    """Returns the version text of the MPI library, also before MPI is initialised; "" where there is no library.

    `Open MPI v5.0.11`, `MPICH Version: 5.0.2`: the rest of these texts, after a comma or on further lines, is left out.
    """
    text = ctypes.create_string_buffer(8192)  # MPI_MAX_LIBRARY_VERSION_STRING of MPICH, the longest
    with contextlib.suppress(OSError, AttributeError):
        name = mpi_library()
        library = ctypes.CDLL(os.path.join(sys.prefix, name) if os.path.dirname(name) else name)
        library.MPI_Get_library_version(text, ctypes.byref(ctypes.c_int()))
    return " ".join(re.split(r"[,\n]", text.value.decode(errors="replace"))[0].split())


def _installed(names: tuple[str, ...]) -> str:
    for name in names:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            return importlib.metadata.version(name).split("+")[0]
    return "none that pip knows of"
