"""Warnings that show a line of the user's program. Every warning of the package goes through here."""

from __future__ import annotations

import importlib
import os
import sys
import warnings
from types import FrameType

# Packages whose lines are not the user's, with what stands between them on the stack.
_NOT_THE_USER = frozenset({"smddp_tf", "keras", "tf_keras", "tensorflow", "contextlib", "functools", "importlib"})
_MADE_BY_AUTOGRAPH = "__autograph_generated_file"


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """`warnings.warn` with the innermost line on the stack that is not in this package, Keras or TensorFlow.

    Inside a `tf.function` that is the line as the user wrote it, not of what AutoGraph made of it.

    Args:
        message: what to say.
        category: its kind. Defaults to `UserWarning`.
    """
    frame = sys._getframe(1)
    while _package(frame) in _NOT_THE_USER and frame.f_back is not None:
        frame = frame.f_back
    module = frame.f_globals.get("__name__", "<unknown>")
    # Where `warnings` notes what it has shown already, once for each line.
    registry = frame.f_globals.setdefault("__warningregistry__", {})
    filename, line = _as_written(frame)
    warnings.warn_explicit(message, category, filename, line, module, registry)


def _package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).split(".")[0]


def _as_written(frame: FrameType) -> tuple[str, int]:
    """The file and line of a frame; of what AutoGraph has made, TensorFlow knows them."""
    if _MADE_BY_AUTOGRAPH in frame.f_code.co_filename:
        stack = importlib.import_module("tensorflow.python.util.tf_stack").extract_stack()
        folders = tuple(filter(None, (_folder_of(package) for package in _NOT_THE_USER)))
        for mapped in reversed(stack):
            if not mapped.filename.startswith(folders) and _MADE_BY_AUTOGRAPH not in mapped.filename:
                return mapped.filename, mapped.lineno or 0
    return frame.f_code.co_filename, frame.f_lineno


def _folder_of(package: str) -> str:
    """Of a package its folder, of a module of Python its file."""
    file = getattr(sys.modules.get(package), "__file__", None) or ""
    return os.path.join(os.path.dirname(file), "") if file.endswith("__init__.py") else file
