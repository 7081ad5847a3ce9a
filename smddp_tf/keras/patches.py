"""The changes to Keras's own classes: this file alone assigns to them; `patch_table.py` lists what is changed, and why.

The code that runs in place of a function of Keras is in the module that needs it, as `around(plain, *arguments)`, where
`plain` is Keras's function. That module calls `wrap`, which looks up Keras's function, checks that it still is what the
code was written for, and puts a wrapper there, once; or `replace`, for what is not a function. Where Keras has changed,
an error or a warning says so, as the row of the table has it.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import sys
import types
from collections.abc import Callable, Container, Iterable
from typing import Any, NamedTuple

from smddp_tf._warn import warn
from smddp_tf.keras.patch_table import FIT, Patch, definer, is_of_keras

_MARK = "_smddp_patch"  # the attribute of a replacement that holds the name of its patch; `functools.wraps` copies it
_ABSENT: Any = object()
# What the look-up of a class or function of Keras raises where Keras is different.
_NOT_FOUND = (AttributeError, ImportError, LookupError, StopIteration, TypeError, ValueError)


class Applied(NamedTuple):
    """A replacement that was made: whose attribute, what was there before, what is there now."""

    patch: Patch
    owner: type
    before: Any
    replacement: Any


_applied: list[Applied] = []


def applied() -> tuple[Applied, ...]:
    """Returns the present replacements, in their order. `FIT` keeps the function, which has another body."""
    return tuple(_applied)


def replace(patch: Patch, make: Callable[[Any], Any], of: type | None = None) -> bool:
    """Replaces a function of Keras by `make(function)`; does nothing where that is done.

    Args:
        patch: the row of the table.
        make: gets the function (of a class method the function inside, of a property the property; None if there is
            none) and returns what takes its place, of the same kind.
        of: a class, for a patch of users' classes: what it has or inherits is replaced.

    Returns:
        Whether Keras's function is replaced now.

    Raises:
        RuntimeError: Keras has changed, and the patch is needed. Where it is not, that is a warning.
    """
    found = _found(patch, of, _plain)
    for owner, plain in found:
        if _mark_of(plain) != patch.name:
            _assign(patch, owner, make(plain))
    return bool(found)


def _found(patch: Patch, of: type | None, plain_of: Callable[[Patch, Any], Any]) -> list[tuple[Any, Any]]:
    """Returns the owners and what each has there, `plain_of(patch, owner)`; [] where Keras has changed, and says so."""
    try:
        owners = patch.found_owners() if of is None else [definer(of, patch.attribute)]
        found = [(owner, plain_of(patch, owner)) for owner in owners]
        differences = [_difference(patch, owner, plain) for owner, plain in found] or ["no class has it"]
    except _NOT_FOUND as problem:
        differences = [str(problem) or type(problem).__name__]
    if not any(differences):
        return found
    _say_changed(patch, next(filter(None, differences)))
    return []


def wrap(patch: Patch, around: Callable[..., Any], of: type | None = None) -> bool:
    """Replaces a function of Keras by one that returns `around(plain, *arguments)`; does nothing where that is done.

    Args:
        patch: the row of the table. Of a property the getter is replaced.
        around: gets Keras's function, None if there is none, and the arguments of the call, `self` among them.
        of: as for `replace`, like the result and the errors.
    """
    return replace(patch, functools.partial(_wrapper, around), of)


def _wrapper(around: Callable[..., Any], plain: Any) -> Any:
    if isinstance(plain, property):
        return property(_wrapper(around, plain.fget), plain.fset, plain.fdel, plain.__doc__)

    def call(*args: Any, **kwargs: Any) -> Any:
        return around(plain, *args, **kwargs)

    return call if plain is None else functools.update_wrapper(call, plain)


def restore(patches: Container[Patch]) -> None:
    """Restores the original attributes, except those that other code has replaced since."""
    for one in reversed([one for one in _applied if one.patch in patches]):
        _applied.remove(one)
        if vars(one.owner).get(one.patch.attribute) is not one.replacement:
            continue
        if one.before is _ABSENT:
            delattr(one.owner, one.patch.attribute)
        else:
            setattr(one.owner, one.patch.attribute, one.before)


@functools.cache
def take_over_fit(around: Callable[..., Any]) -> None:
    """Replaces the body of Keras's `fit` by a call of `around(fit, *arguments)`; does nothing the second time.

    Other libraries replace `fit` too (autologging, tests), with and without `functools.wraps`, and may have taken hold
    of Keras's function before we came. So no attribute is replaced: that function object itself gets another body.

    Raises:
        RuntimeError: This Keras has no such function.
    """
    ((trainer, function),) = _found(FIT, None, _function_of_keras)
    plain = types.FunctionType(function.__code__, function.__globals__, function.__name__, function.__defaults__)
    plain.__kwdefaults__ = function.__kwdefaults__
    plain.__qualname__ = function.__qualname__
    trainer._smddp_fit = _wrapper(around, plain)
    function.__signature__ = inspect.signature(plain)
    function.__defaults__ = function.__kwdefaults__ = None
    function.__code__ = _call_replacement.__code__
    _applied.append(Applied(FIT, trainer, plain, function))


def _call_replacement(self: Any, *args: Any, **kwargs: Any) -> Any:
    # Runs with the globals of Keras's module: may use nothing but its arguments.
    return self._smddp_fit(*args, **kwargs)


def _function_of_keras(patch: Patch, trainer: type) -> types.FunctionType | None:
    """The function that Keras defines in `trainer`, also where something else has its name by now; or None."""
    name = patch.attribute
    for one in _reached_from([vars(trainer).get(name), *vars(trainer).values()]):
        if (
            isinstance(one, types.FunctionType)
            and one.__globals__ is vars(sys.modules[trainer.__module__])
            and one.__code__.co_name == name
            and one.__qualname__ == f"{trainer.__name__}.{name}"
        ):
            return one
    return None


def _reached_from(wrappers: Iterable[Any]) -> list[Any]:
    """Wrappers, and what they are around: what they name as that, and what they hold in closures and attributes."""
    found = list(wrappers)
    seen = set(map(id, found))
    for one in found:  # which grows
        if callable(one) and not isinstance(one, type):
            held = [*getattr(one, "__dict__", {}).values(), *map(_content, getattr(one, "__closure__", None) or ())]
            held += [getattr(one, name, None) for name in ("__func__", "__wrapped__")]
            held += [one.func] if isinstance(one, functools.partial) else []
            found += [each for each in held if id(each) not in seen]
            seen.update(map(id, held))
    return found


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # a name that is not defined yet
        return None


def _plain(patch: Patch, owner: type) -> Any:
    """Returns the function (of a class method the one inside) or property that the patch replaces, or None."""
    value = vars(owner).get(patch.attribute, getattr(owner, patch.attribute, None))
    return value.__func__ if isinstance(value, classmethod) else value


def _difference(patch: Patch, owner: type, plain: object) -> str:
    """Returns the difference from what the patch expects, or ""."""
    where = f"{owner.__name__}.{patch.attribute}"
    if plain is None:
        return "" if patch.kind in ("new", "any") else f"{where} does not exist"
    if _mark_of(plain) == patch.name or patch.kind == "module":
        return ""
    if patch.kind == "new":
        return f"{where} exists"
    if patch.kind == "property":
        return "" if isinstance(plain, property) else f"{where} is not a property"
    if patch.kind == "classmethod" and not isinstance(vars(owner).get(patch.attribute), classmethod):
        return f"{where} is not a class method"
    return _difference_of_function(patch, where, plain)


def _difference_of_function(patch: Patch, where: str, function: object) -> str:
    if not callable(function):
        return f"{where} is not a function"
    if not patch.parameters:
        return ""
    parameters = inspect.signature(function).parameters
    kinds = {parameter.kind for parameter in parameters.values()}
    takes_any = {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD} <= kinds
    missing = [name for name in patch.parameters if name not in parameters]
    if missing and not takes_any:
        return f"{where} has no parameter {', '.join(map(repr, missing))}"
    is_keras_own = is_of_keras(function) and not hasattr(function, "__wrapped__")
    code = getattr(function, "__code__", None)
    unset = [name for name in patch.sets if name not in code.co_names] if code is not None and is_keras_own else []
    return f"{where} does not set {', '.join(unset)}" if unset else ""


def _mark_of(replacement: object) -> Any:
    return getattr(getattr(replacement, "fget", replacement), _MARK, None)


def _assign(patch: Patch, owner: type, replacement: Any) -> None:
    setattr(getattr(replacement, "fget", replacement), _MARK, patch.name)
    replacement = classmethod(replacement) if patch.kind == "classmethod" else replacement
    _applied.append(Applied(patch, owner, vars(owner).get(patch.attribute, _ABSENT), replacement))
    setattr(owner, patch.attribute, replacement)


def _say_changed(patch: Patch, found: str) -> None:
    """Says that this Keras is not what a patch was written for: as an error, or as a warning."""
    keras = importlib.import_module("keras")
    message = (
        f"smddp_tf replaces `{patch.name}`, because {patch.reason}. Keras {keras.__version__} is different: {found}. "
        f"Without the replacement {patch.without}. Seen to work: Keras {patch.seen}."
    )
    if patch.is_needed:
        raise RuntimeError(message)
    warn(message, RuntimeWarning)
