"""Where `horovod` is an alias of this package, wrapped optimizers say that they are Horovod's: programs look for that.

They look at `type(optimizer).__module__`, `optimizer.__module__`, `repr(optimizer)` and `str(optimizer)`. Keras writes
the module and the name of `optimizer.__class__` into files, which stay what they are without the alias.
"""

from __future__ import annotations

import types
from typing import Any

from smddp_tf import aliases

__all__ = ["shown_as_horovods"]

_SHOWN = "_smddp_shown"  # the attribute of a class that holds the one it is shown as


def shown_as_horovods(ours: Any, module: str, name: str | None = None) -> Any:
    """Returns the class that objects of `ours` get: one that names Horovod's module under the alias, else `ours`.

    Args:
        ours: a class. Its objects' `__class__` stays it.
        module: the module of Horovod.
        name: the name of the class there. Defaults to that of `ours`.
    """
    if not aliases.is_installed("horovod"):
        return ours
    if _SHOWN not in vars(ours):
        setattr(ours, _SHOWN, _subclass(ours, module, name or ours.__name__))
    return getattr(ours, _SHOWN)


def _subclass(ours: Any, module: str, name: str) -> Any:
    namespace = {
        "__module__": module,
        "__qualname__": name,
        "__doc__": ours.__doc__,
        "__class__": property(lambda self: ours),
    }
    return types.new_class(name, (ours,), exec_body=lambda body: body.update(namespace))
