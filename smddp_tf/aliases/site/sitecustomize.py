"""Run by Python when it starts, where SMDDP_AS is set: see `smddp_tf.aliases.environment`.

Cheap, because it runs in every Python: smddp_tf is imported when one of the names is asked for, and not before.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

_FAMILIES = [family for family in os.environ.get("SMDDP_AS", "").split(",") if family]
_OTHER_NAMES = {"smdistributed": ("smddpcommon", "herringcommon"), "keras.distribution": ("keras",)}


class _Waiting:
    """Installs the aliases at the first import of one of the names, and then stands aside."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        root = name.partition(".")[0]
        mine = [f for f in _FAMILIES if root in (f, *_OTHER_NAMES.get(f, ()))]
        if not mine:
            return None
        sys.meta_path.remove(self)
        try:
            aliases = importlib.import_module("smddp_tf.aliases")
        except ModuleNotFoundError:  # another Python, in which smddp_tf is not installed
            return None
        for family in _FAMILIES:
            aliases.install(family)
        return next(spec for spec in (f.find_spec(name, path, target) for f in sys.meta_path) if spec is not None)


def _run_the_next_sitecustomize() -> None:
    here = os.path.dirname(os.path.abspath(__file__))
    path = list(sys.path)
    mine = sys.modules.pop("sitecustomize")
    sys.path[:] = [folder for folder in path if os.path.abspath(folder) != here]
    try:
        importlib.import_module("sitecustomize")
    except ModuleNotFoundError as error:
        if error.name != "sitecustomize":
            raise
    finally:
        sys.modules.setdefault("sitecustomize", mine)  # the import that runs this file looks for it


if _FAMILIES:
    sys.meta_path.insert(0, _Waiting())
_run_the_next_sitecustomize()
