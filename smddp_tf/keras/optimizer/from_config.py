"""Optimizers that are made from the configuration of a wrapped one reduce as that one does.

`type(optimizer).from_config(config)` makes one of the wrapped class, which has the settings. Where Keras looks up the
class by the names in a configuration (`keras.optimizers.deserialize`, `model.compile_from_config`), it finds the plain
class, as it must for files, which contain nothing of this library. In memory the origin of a configuration is known by
the string object of the optimizer's name, of which there is one for each reducer. A copy of the dict has the same
object. A configuration that went through a file, JSON or pickle has another one, and its optimizer is plain. So is the
result of `keras.optimizers.Adam.from_config(config)`: the script names that class, and may wrap the optimizer.

An additional key in the configuration would not do: Keras makes the configurations of files and of copies in memory by
one function, and its optimizers refuse unknown keys, so such a file would not load without this library.
"""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Callable
from typing import Any

from smddp_tf.keras import patch_table, patches
from smddp_tf.keras.roles.wrapping import is_wrapped, reducer_on

# By the id of the name object, which the reducer keeps alive.
_reducers: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()


def configuration(config: dict[str, Any], reducer: Any) -> dict[str, Any]:
    """Marks the configuration of a wrapped optimizer, for its `get_config`.

    Args:
        config: the plain configuration; its name is replaced by an equal string.
        reducer: the reducer of the optimizer.

    Returns:
        `config`.
    """
    name = config.get("name")
    if isinstance(name, str) and len(name) > 1:  # Python has one object for all strings of a single character
        name_of_reducer = reducer.names.setdefault(name, _copy_of(name))
        _reducers[id(name_of_reducer)] = reducer
        config["name"] = name_of_reducer
    return config


def notice_from_config(optimizer_class: type, attach: Callable[..., Any]) -> None:
    """Makes `from_config` of a class and its subclasses restore the reducer of a configuration. Later calls do nothing.

    Args:
        optimizer_class: the class of the user's optimizer.
        attach: `attach(optimizer, settings, local)` makes an optimizer reduce and returns its reducer; without the
            last two it uses those of its class.
    """
    patches.replace(patch_table.FROM_CONFIG, functools.partial(_restoring, attach), of=optimizer_class)


def _restoring(attach: Callable[..., Any], make: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(make)
    def from_config(cls: Any, config: Any, *args: Any, **kwargs: Any) -> Any:
        by_keras = "serialization" in sys._getframe(1).f_globals.get("__name__", "")
        original = _reducer_of(config)
        if original is not None:  # only configurations of `original` may have its name object
            config = {**config, "name": _copy_of(config["name"])}
        optimizer = make(cls, config, *args, **kwargs)
        if reducer_on(optimizer) is None and (by_keras or is_wrapped(optimizer)):
            if original is not None:
                attach(optimizer, original.settings, original.local).is_inherited = by_keras
            elif is_wrapped(optimizer):
                attach(optimizer)
        return optimizer

    return from_config


def _reducer_of(config: Any) -> Any:
    """Returns the reducer of the optimizer that a configuration describes, or None."""
    name = config.get("name") if isinstance(config, dict) else None
    reducer = _reducers.get(id(name)) if type(name) is str else None
    return reducer if reducer is not None and reducer.names.get(name) is name else None


def _copy_of(name: str) -> str:
    """Returns an equal string that is another object."""
    return "".join(list(name))
