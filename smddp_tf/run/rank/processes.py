"""Starts the launcher's own programs, so that they end with the process that has started them.

They import nothing from the current folder, which may be another user's. `python -m MODULE` has that folder first on
its path; `python -I` would leave out PYTHONPATH, where smddp_tf may be, and `-P` needs Python 3.11.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence

_PR_SET_PDEATHSIG = 1
_CODE = "import sys; sys.path[:1] = sys.path[:1] if sys.path[:1] != [''] else []; {}from {} import main; main()"
# Makes the package a folder of modules: what its own module imports takes most of the time of a supervisor's start.
_BARE = "import importlib.util as u; sys.modules['smddp_tf'] = u.module_from_spec(u.find_spec('smddp_tf')); "


def isolated(module: str, python: str, bare: bool = False) -> list[str]:
    """The words that start `main` of a module; with `bare` without running `smddp_tf/__init__.py`."""
    return [python, "-c", _CODE.format(_BARE if bare else "", module)]


def runs(module: str, command: Sequence[str]) -> bool:
    """True for `isolated(module, ...)`."""
    return list(command[1:]) == isolated(module, "")[1:]


def end_with_parent(sign: int, parent: int = 0) -> None:
    """Makes the kernel send `sign` to this process when its parent ends; at once, if it is not `parent` now."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, sign, 0, 0, 0)
    if parent and os.getppid() != parent:
        os.kill(os.getpid(), sign)
