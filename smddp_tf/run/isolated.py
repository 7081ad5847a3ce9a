"""Our own programs, started so that nothing is imported from the current folder, which may be another user's.

`python -m MODULE` has that folder first on its path; `python -I` would leave out PYTHONPATH, where smddp_tf may be, and
`-P` needs Python 3.11.
"""

from __future__ import annotations

from collections.abc import Sequence

_CODE = "import sys; sys.path[:1] = sys.path[:1] if sys.path[:1] != [''] else []; from {} import main; main()"


def isolated(module: str, python: str) -> list[str]:
    """The words that start `main` of a module."""
    return [python, "-c", _CODE.format(module)]


def runs(module: str, command: Sequence[str]) -> bool:
    """True for `isolated(module, ...)`."""
    return list(command[1:]) == isolated(module, "")[1:]
