"""Warnings that name the line of the user's program, through whatever libraries it was reached."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
import warnings
from collections.abc import Iterable
from typing import Any

__all__ = ["warn"]

_LIBRARIES = ("smddp_tf", "tensorflow", "keras", "tf_keras")


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """`warnings.warn` at the innermost line that belongs neither to this library nor to TensorFlow nor to Keras.

    Inside a `tf.function` that is the line as the user wrote it, not of what AutoGraph made of it.
    """
    filename, line = _line_of_user()
    warnings.warn_explicit(message, category, filename, line)


def _line_of_user() -> tuple[str, int]:
    frames = list(_frames())
    folders = tuple(filter(None, map(_folder_of, _LIBRARIES)))
    for frame in reversed(frames):
        if not frame.filename.startswith(folders) and not _is_pythons_own(frame.filename):
            return frame.filename, frame.lineno or 0
    return frames[0].filename, frames[0].lineno or 0


def _frames() -> Iterable[Any]:
    """The stack, outermost first; TensorFlow knows which lines of generated code are whose."""
    if "tensorflow" in sys.modules:
        try:
            return importlib.import_module("tensorflow.python.util.tf_stack").extract_stack()
        except (ImportError, AttributeError):  # no public part of TensorFlow
            pass
    return traceback.extract_stack()


def _folder_of(library: str) -> str:
    file = getattr(sys.modules.get(library), "__file__", None)
    return os.path.join(os.path.dirname(file), "") if file else ""


def _is_pythons_own(filename: str) -> bool:
    return filename.startswith(os.path.dirname(os.__file__)) and "-packages" not in filename
