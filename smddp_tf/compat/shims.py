"""Replacements for methods of classes of Keras 3; see the package."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from smddp_tf import basics
from smddp_tf._warn import warn
from smddp_tf.collectives import graph
from smddp_tf.keras import patch_table, patches

_said: set[str] = set()


@graph.no_autograph
def once(old: str, modern: str) -> None:
    """Warns that the script uses the form `old`, at the line of the script; says so for each form once.

    Args:
        old: the form, as a script writes it.
        modern: what Keras 3 has in its place.
    """
    if old in _said:
        return
    _said.add(old)
    if basics.is_initialized() and basics.rank() != 0:
        return
    warn(
        f"`{old}` is how Keras 2 did it; smddp_tf makes Keras 3 accept it. Write: {modern}. "
        "(SMDDP_KERAS_COMPAT=0 switches this off.)",
        FutureWarning,
    )


def install() -> None:
    """Replaces the attributes; does nothing when that is done."""
    for patch, make in _SHIMS.items():
        patches.replace(patch, make)


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


def _with_callable_list(plain: property) -> Any:
    assert plain.fget is not None
    get = plain.fget

    @functools.wraps(get)
    def variables(self: Any) -> CallableList:
        return CallableList(get(self))

    return property(variables, plain.fset, plain.fdel, plain.__doc__)


def _with_lr_argument(plain: Callable[..., Any]) -> Callable[..., Any]:
    """`lr` is `learning_rate`; with both given the error is Keras's own."""

    @functools.wraps(plain)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
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

    return __init__


def _reads_lr(plain: Callable[..., Any] | None) -> Callable[..., Any]:
    """For attributes that do not exist: `lr` is in no `dir()`, so nothing that walks over attributes meets it."""

    def __getattr__(self: Any, name: str) -> Any:
        if name == "lr" and _is_keras_own(self):
            once("optimizer.lr", "optimizer.learning_rate")
            return self.learning_rate
        if plain is not None:
            return plain(self, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    return __getattr__


def _writes_lr(plain: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(plain)
    def __setattr__(self: Any, name: str, value: object) -> None:
        if name == "lr" and _is_keras_own(self):
            once("optimizer.lr", "optimizer.learning_rate")
            name = "learning_rate"
        plain(self, name, value)

    return __setattr__


def _is_keras_own(optimizer: object) -> bool:
    """True for Keras's own optimizers, wrapped or not; what `lr` is to a class of the user is the user's business."""
    return patch_table.is_of_keras(getattr(type(optimizer), "_smddp_wraps", type(optimizer)))


def _without_old_arguments(plain: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(plain)
    def compile(self: Any, *args: Any, **kwargs: Any) -> Any:
        if "experimental_run_tf_function" in kwargs:
            del kwargs["experimental_run_tf_function"]
            once("compile(experimental_run_tf_function=...)", "compile(...) without it; it has no effect")
        return plain(self, *args, **kwargs)

    return compile


_SHIMS: dict[patch_table.Patch, Callable[[Any], Any]] = {
    patch_table.CALLABLE_VARIABLES: _with_callable_list,
    patch_table.LR_ARGUMENT: _with_lr_argument,
    patch_table.READS_LR: _reads_lr,
    patch_table.WRITES_LR: _writes_lr,
    patch_table.COMPILE: _without_old_arguments,
}
