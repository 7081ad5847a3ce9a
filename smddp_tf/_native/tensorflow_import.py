"""Facts of the build, and an error where TensorFlow is missing, before a module that needs it is imported."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from typing import Any


def need_tensorflow() -> None:
    """Does nothing where there is a TensorFlow.

    Raises:
        ImportError: there is none. Says which one to install, and how.
    """
    if importlib.util.find_spec("tensorflow") is None:
        version = build_info("TENSORFLOW_VERSION")
        which = f"this build of smddp_tf needs {minor_of(version)}" if version else "smddp_tf needs 2.16 or newer"
        raise ImportError(f"TensorFlow is not installed; {which}. Install it with:\n    {install_command(version)}")


def import_with_tensorflow(module: str) -> Any:
    """Imports one of our modules, which may import TensorFlow. Raises the same ImportError."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError:
        need_tensorflow()
        raise


def install_command(version: str) -> str:
    """Returns the command that installs a TensorFlow of this minor version; of any, where `version` is ""."""
    wanted = f"=={minor_of(version)}.*" if version else ">=2.16"
    return f"{sys.executable} -m pip install 'tensorflow{wanted}'"


def minor_of(version: str) -> str:
    """Returns the minor version, such as `2.21` of `2.21.0rc1`."""
    return ".".join(version.split(".")[:2])


def build_info(name: str) -> str:
    """Returns the value that the build has recorded under `name` (setup.py); "" where there is none."""
    try:
        return str(getattr(importlib.import_module("smddp_tf._build_info"), name, ""))
    except ImportError:
        return ""
