"""The versions that must be the same on all ranks. Nothing is imported to find them."""

from __future__ import annotations

import importlib.metadata
import sys

_DISTRIBUTIONS = {"TensorFlow": ("tensorflow", "tensorflow-cpu", "tf-nightly"), "Keras": ("keras", "keras-nightly")}


def facts() -> list[tuple[str, str]]:
    """What to compare, with this rank's values.

    Of Python the minor version counts: what ranks send each other is pickled. Of the others, all but what a builder
    has added to the version (`2.21.0+nv24`).
    """
    found = [("The version of Python", f"{sys.version_info.major}.{sys.version_info.minor}")]
    found += [(f"The version of {what}", _installed(names)) for what, names in _DISTRIBUTIONS.items()]
    return found


def _installed(names: tuple[str, ...]) -> str:
    for name in names:
        try:
            return importlib.metadata.version(name).split("+")[0]
        except importlib.metadata.PackageNotFoundError:
            pass
    return "none that pip knows of"
