"""Optimizers that are made anew from the configuration of a wrapped one: they reduce as that one does.

`type(optimizer).from_config(config)` makes one of the wrapped class, which knows the settings. Where Keras goes from
the names in a configuration to a class (`keras.optimizers.deserialize`, `model.compile_from_config`), it finds the
plain class, as it must in files, which hold nothing of ours. In memory the name of the optimizer in its configuration
tells where it comes from: it is a string that also holds the reduction. A file or JSON makes a plain string of it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from smddp_tf.keras.wrapping import is_wrapped, reduction_on

__all__ = ["configuration", "notice_from_config"]

_MARK = "_smddp_notices"


class _Name(str):
    """The name of a wrapped optimizer, in its configuration.

    Attributes:
        reduction: how the optimizer reduces.
    """

    reduction: Any

    def __deepcopy__(self, memo: Any) -> _Name:
        return self

    def __reduce__(self) -> Any:
        """Pickled as a plain string: it loads where this library is not."""
        return str, (str(self),)


def configuration(config: dict[str, Any], reduction: Any) -> dict[str, Any]:
    """The configuration of a wrapped optimizer, for its `get_config`; equal to `config`."""
    if isinstance(config.get("name"), str):
        name = _Name(config["name"])
        name.reduction = reduction
        config["name"] = name
    return config


def notice_from_config(optimizer_class: type, attach: Callable[..., Any]) -> None:
    """Lets `from_config` of a class and its subclasses make what the configuration's optimizer was; once.

    Args:
        optimizer_class: the user's class.
        attach: `attach(optimizer, settings, local)` makes an optimizer reduce; None for both stands for its class's.
    """
    owner: Any = next(base for base in optimizer_class.__mro__ if "from_config" in vars(base))
    plain = vars(owner)["from_config"]
    if not isinstance(plain, classmethod) or hasattr(plain.__func__, _MARK):
        return
    make = plain.__func__

    @functools.wraps(make)
    def from_config(cls: Any, config: Any, *args: Any, **kwargs: Any) -> Any:
        name = config.get("name") if isinstance(config, dict) else None
        if isinstance(name, _Name):
            config = {**config, "name": str(name)}
        optimizer = make(cls, config, *args, **kwargs)
        if reduction_on(optimizer) is None:
            if isinstance(name, _Name):
                attach(optimizer, name.reduction.settings, name.reduction.local)
            elif is_wrapped(optimizer):
                attach(optimizer)
        return optimizer

    setattr(from_config, _MARK, True)
    owner.from_config = classmethod(from_config)
