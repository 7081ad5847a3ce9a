"""Optimizers that are made anew from the configuration of a wrapped one: they reduce as that one does.

`type(optimizer).from_config(config)` makes one of the wrapped class, which knows the settings. Where Keras goes from
the names in a configuration to a class (`keras.optimizers.deserialize`, `model.compile_from_config`), it finds the
plain class, as it must in files, which hold nothing of ours. In memory the name of the optimizer in its configuration
tells where it comes from: it is a string object of which there is one for each reducer. A copy of the dict has the
same object; what went through a file, JSON or pickle has another, and is plain. So is what a script makes with
`keras.optimizers.Adam.from_config(config)`: it asks for that class, and may wrap what it gets.

A key of our own cannot tell it: Keras makes the configurations of files and of copies in memory by one function, and
its optimizers refuse keys that they do not know, so such a file would not load where this library is not.
"""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Callable
from typing import Any

from smddp_tf.keras import patch_table, patches
from smddp_tf.keras.roles.wrapping import is_wrapped, reducer_on

# By the identity of a name, which the reducer keeps alive.
_reducers: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()


def configuration(config: dict[str, Any], reducer: Any) -> dict[str, Any]:
    """The configuration of a wrapped optimizer, for its `get_config`; equal to `config`."""
    name = config.get("name")
    if isinstance(name, str) and len(name) > 1:  # Python has one object for all strings of a single character
        own = reducer.names.setdefault(name, _another(name))
        _reducers[id(own)] = reducer
        config["name"] = own
    return config


def notice_from_config(optimizer_class: type, attach: Callable[..., Any]) -> None:
    """Lets `from_config` of a class and its subclasses make what the configuration's optimizer was; once.

    Args:
        optimizer_class: the user's class.
        attach: `attach(optimizer, settings, local)` makes an optimizer reduce and returns its reducer; None for both
            stands for its class's.
    """
    patches.replace(patch_table.FROM_CONFIG, functools.partial(_noticing, attach), of=optimizer_class)


def _noticing(attach: Callable[..., Any], make: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(make)
    def from_config(cls: Any, config: Any, *args: Any, **kwargs: Any) -> Any:
        by_keras = "serialization" in sys._getframe(1).f_globals.get("__name__", "")
        original = _reducer_named(config)
        if original is not None:  # the name shall lead to `original` in its own configurations only
            config = {**config, "name": _another(config["name"])}
        optimizer = make(cls, config, *args, **kwargs)
        if reducer_on(optimizer) is None and (by_keras or is_wrapped(optimizer)):
            if original is not None:
                attach(optimizer, original.settings, original.local).is_inherited = by_keras
            elif is_wrapped(optimizer):
                attach(optimizer)
        return optimizer

    return from_config


def _reducer_named(config: Any) -> Any:
    """The reducer of the optimizer that a configuration describes, or None."""
    name = config.get("name") if isinstance(config, dict) else None
    reducer = _reducers.get(id(name)) if type(name) is str else None
    return reducer if reducer is not None and reducer.names.get(name) is name else None


def _another(name: str) -> str:
    """An equal string that is another object."""
    return "".join(list(name))
