"""Replacements for methods of classes of Keras 3; see the package."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from smddp_tf import basics
from smddp_tf._warn import warn
from smddp_tf.collectives import graph
from smddp_tf.keras import patch_table, patches


@functools.cache
@graph.no_autograph
def once(old: str, modern: str) -> None:
    """Warns that the script uses the form `old`, at the line of the script; for each form once.

    Args:
        old: the form, as a script writes it.
        modern: what Keras 3 has in its place.
    """
    if basics.is_initialized() and basics.rank() != 0:
        return
    warn(
        f"`{old}` is how Keras 2 did it; smddp_tf makes Keras 3 accept it. Write: {modern}. "
        "(SMDDP_KERAS_COMPAT=0 switches this off.)",
        FutureWarning,
    )


def install() -> None:
    """Replaces the attributes; does nothing when that is done."""
    for patch, around in _SHIMS.items():
        patches.wrap(patch, around)


def uninstall() -> None:
    """Restores the original attributes, except those that other code has replaced since."""
    patches.restore(_SHIMS)


class CallableList(list[Any]):
    """A list of variables that may be called, which gives the list."""

    def __call__(self) -> list[Any]:
        once("optimizer.variables()", "optimizer.variables")
        return list(self)

    def __reduce_ex__(self, protocol: object) -> Any:
        """Pickled and copied as a plain list: it loads where this library is not."""
        return list, (list(self),)


def _variables(plain: Callable[..., Any], self: Any) -> CallableList:
    return CallableList(plain(self))


def _init(plain: Callable[..., Any], self: Any, *args: Any, **kwargs: Any) -> None:
    """`lr` is `learning_rate`; with both given the error is Keras's own."""
    name = type(self).__name__
    if "lr" in kwargs and not args and "learning_rate" not in kwargs:
        once(f"{name}(lr=...)", f"{name}(learning_rate=...)")
        kwargs["learning_rate"] = kwargs.pop("lr")
    if kwargs.get("decay"):
        once(
            f"{name}(decay=...)",
            "learning_rate=keras.optimizers.schedules.InverseTimeDecay(rate, decay_steps=1, decay_rate=decay). "
            "Without it Keras 3 ignores the decay",
        )
    plain(self, *args, **kwargs)


def _getattr(plain: Callable[..., Any] | None, self: Any, name: str) -> Any:
    """For attributes that do not exist: `lr` is in no `dir()`, so code that lists attributes does not read it."""
    if name == "lr" and _is_keras_own(self):
        once("optimizer.lr", "optimizer.learning_rate")
        return self.learning_rate
    if plain is not None:
        return plain(self, name)
    raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


def _setattr(plain: Callable[..., Any], self: Any, name: str, value: object) -> None:
    if name == "lr" and _is_keras_own(self):
        once("optimizer.lr", "optimizer.learning_rate")
        name = "learning_rate"
    plain(self, name, value)


def _is_keras_own(optimizer: object) -> bool:
    """True for Keras's own optimizers, wrapped or not; what `lr` is to a class of the user is the user's business."""
    return patch_table.is_of_keras(getattr(type(optimizer), "_smddp_wraps", type(optimizer)))


def _compile(plain: Callable[..., Any], self: Any, *args: Any, **kwargs: Any) -> Any:
    if "experimental_run_tf_function" in kwargs:
        del kwargs["experimental_run_tf_function"]
        once("compile(experimental_run_tf_function=...)", "compile(...) without it; it has no effect")
    return plain(self, *args, **kwargs)


_SHIMS: dict[patch_table.Patch, Callable[..., Any]] = {
    patch_table.CALLABLE_VARIABLES: _variables,
    patch_table.LR_ARGUMENT: _init,
    patch_table.READS_LR: _getattr,
    patch_table.WRITES_LR: _setattr,
    patch_table.COMPILE: _compile,
}
