"""The launcher: `smddprun` on the command line, `smddp_tf.run.run(func)` in Python.

Nothing here imports TensorFlow: the launcher must be quick, and must not hold devices that the ranks need.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from smddp_tf.exceptions import LaunchError
    from smddp_tf.run.launch.function import run

__all__ = ["LaunchError", "run"]

_LAZY = {"LaunchError": "smddp_tf.exceptions", "run": "smddp_tf.run.launch.function"}


if not TYPE_CHECKING:  # a misspelt name is an error of a type checker

    def __getattr__(name: str) -> Any:
        if name not in _LAZY:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(_LAZY[name]), name)
        globals()[name] = value
        return value
