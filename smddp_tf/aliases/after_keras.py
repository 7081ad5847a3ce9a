"""Data-parallel training without a line in the script: it starts with the script's own import of Keras."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.util
import os
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType

KERAS_DISTRIBUTION = "keras.distribution"  # no alias: with `import keras` comes a DataParallel over all ranks
VARIABLE = "SMDDP_AS"  # read by site/sitecustomize.py in child processes


def _start() -> None:
    """Makes this process a rank; its own children are none."""
    families = os.environ.get(VARIABLE, "").split(",")
    os.environ[VARIABLE] = ",".join(family for family in families if family != KERAS_DISTRIBUTION)
    importlib.import_module("smddp_tf.keras.distribution").start()


class AfterKeras(importlib.abc.MetaPathFinder):
    """Finds Keras where it is, and has `smddp_tf.keras.distribution` started after it; once."""

    def install(self) -> None:
        if "keras" in sys.modules:
            _start()
        else:
            sys.meta_path.insert(0, self)

    def find_spec(self, fullname: str, path: object = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if fullname != "keras" or self not in sys.meta_path:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec("keras")
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                execute(module)
                _start()

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
