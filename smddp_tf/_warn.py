"""Warnings that show a line of the user's program. Every warning of the package goes through here."""

from __future__ import annotations

import sys
import warnings
from types import FrameType

__all__ = ["warn"]

# Packages whose lines are not the user's, with what stands between them on the stack.
_NOT_THE_USER = frozenset({"smddp_tf", "keras", "tf_keras", "tensorflow", "contextlib", "functools", "importlib"})


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """`warnings.warn`, as of the innermost line on the stack that is neither ours nor Keras's or TensorFlow's.

    Args:
        message: what to say.
        category: its kind. Defaults to `UserWarning`.
    """
    frame = _frame_of_user(sys._getframe(1))
    module = frame.f_globals.get("__name__", "<unknown>")
    # Where `warnings` notes what it has shown already, once for each line.
    registry = frame.f_globals.setdefault("__warningregistry__", {})
    warnings.warn_explicit(message, category, frame.f_code.co_filename, frame.f_lineno, module, registry)


def _frame_of_user(frame: FrameType) -> FrameType:
    while _package(frame) in _NOT_THE_USER and frame.f_back is not None:
        frame = frame.f_back
    return frame


def _package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).split(".")[0]
