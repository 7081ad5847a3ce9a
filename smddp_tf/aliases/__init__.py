"""Scripts written for Horovod or SMDDP run as they are: imports of `horovod` or `smdistributed` resolve to smddp_tf.

    python -m smddp_tf.run --as horovod script.py
    mpirun -np 4 python -m smddp_tf.aliases horovod script.py
    import smddp_tf.as_horovod  # in a script, before its other imports

Without one of these nothing is changed, and `import horovod` finds an installed Horovod. Needs no TensorFlow.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from smddp_tf.aliases import table
from smddp_tf.aliases.after_keras import KERAS_DISTRIBUTION, VARIABLE, AfterKeras
from smddp_tf.aliases.finder import Alias, Finder

__all__ = ["FAMILIES", "KERAS_DISTRIBUTION", "environment", "install", "uninstall"]

_SITE = str(Path(__file__).resolve().parent / "site")

_HOROVOD = {"horovod": table.HOROVOD_VERSION}  # the module's and the distribution's
_SMDDP = {"smdistributed.dataparallel": table.SMDDP_VERSION}
_SMDDP_DISTRIBUTION = {"smdistributed-dataparallel": table.SMDDP_VERSION}
_FINDERS = {
    "horovod": Finder(table.HOROVOD, table.HOROVOD_ABSENT, _HOROVOD, _HOROVOD, callables=("horovod.run",)),
    "smdistributed": Finder(table.SMDISTRIBUTED, table.SMDISTRIBUTED_ABSENT, _SMDDP, _SMDDP_DISTRIBUTION),
}
FAMILIES = tuple(_FINDERS)


def install(family: str) -> None:
    """Makes imports of a library in this process resolve to smddp_tf; does nothing the second time.

    Child processes need `environment` too.

    Args:
        family: "horovod"; or "smdistributed", which is also `smddpcommon` and `herringcommon`; or `KERAS_DISTRIBUTION`.

    Raises:
        ValueError: `family` is none of these.
        ImportError: The library itself has been imported already.
    """
    if family == KERAS_DISTRIBUTION:
        return AfterKeras().install()
    finder = _finder(family)
    for root in sorted(finder.aliased):
        if root in sys.modules and not isinstance(sys.modules[root], Alias):
            raise ImportError(
                f"{root} is imported already, from {getattr(sys.modules[root], '__file__', 'somewhere else')}, so "
                f"smddp_tf cannot stand for it any more. Put `import smddp_tf.as_{family}` before the first import of "
                f"{root}, or start the script with `python -m smddp_tf.run --as {family}`."
            )
    if finder not in sys.meta_path:
        sys.meta_path.insert(0, finder)


def install_everywhere(family: str) -> None:
    """`install` in this process and, when they start, in its child processes."""
    install(family)
    os.environ.update(environment(family))


def uninstall(family: str) -> None:
    """Undoes `install`. Modules that were imported already stay valid.

    Args:
        family: as for `install`.
    """
    finder = _finder(family)
    if finder in sys.meta_path:
        sys.meta_path.remove(finder)
        for name in [name for name, module in sys.modules.items() if isinstance(module, Alias)]:
            if name.partition(".")[0] in finder.aliased:
                del sys.modules[name]


def environment(family: str, base: Mapping[str, str] | None = None) -> dict[str, str]:
    """Returns the environment variables with which Python processes call `install(family)` when they start.

    They put our `sitecustomize` in front of `PYTHONPATH`; it also runs the previous one. A Python
    without smddp_tf, and one started with `-E`, `-I` or `-S`, does not notice.

    Args:
        family: as for `install`. Several, given one after another as `base`, add up.
        base: the environment to start from. Defaults to this process's.

    Returns:
        The variables that must change, with their new values.
    """
    if family != KERAS_DISTRIBUTION:
        _finder(family)
    base = os.environ if base is None else base
    families = [*filter(None, base.get(VARIABLE, "").split(",")), family]
    folders = [_SITE, *filter(None, base.get("PYTHONPATH", "").split(os.pathsep))]
    return {VARIABLE: ",".join(dict.fromkeys(families)), "PYTHONPATH": os.pathsep.join(dict.fromkeys(folders))}


def install_inherited() -> None:
    """Installs what the environment names, which another process has set there for this one."""
    for family in filter(None, os.environ.get(VARIABLE, "").split(",")):
        install(family)


def _finder(family: str) -> Finder:
    if family not in _FINDERS:
        raise ValueError(f"`family` must be one of {', '.join(map(repr, FAMILIES))}. Received: {family!r}.")
    return _FINDERS[family]
