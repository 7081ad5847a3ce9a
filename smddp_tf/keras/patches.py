"""The changes to Keras's own classes: this file alone assigns to them, and `PATCHES` lists what is changed.

What stands in place of a function of Keras is in the module that needs it, as `make(plain) -> replacement`. That module
calls `replace`, which looks up Keras's function, checks that it still is what the replacement was written for, and puts
the replacement there, once. Where Keras has changed, an error or a warning says so, as the row of the table has it.
"""

from __future__ import annotations

import functools
import gc
import importlib
import inspect
import sys
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from smddp_tf._warn import warn

__all__ = ["PATCHES", "Applied", "Patch", "applied", "replace", "restore", "take_over_fit"]

_MARK = "_smddp_patch"  # the attribute of a replacement that holds the name of its patch; `functools.wraps` copies it
_ABSENT: Any = object()
_SEEN = "3.3.3, 3.5.0, 3.9.2, 3.11.3 and 3.15"  # the versions of tools/test_matrix.py
_SEEN_2 = "2.16 and 2.18 to 2.21 (tf_keras), 3.3.3, 3.5.0, 3.9.2, 3.11.3 and 3.15"


def _keras() -> Any:
    return importlib.import_module("keras")


def _trainer() -> type:
    return next(base for base in _keras().Model.__mro__ if "make_train_function" in vars(base))


def _optimizers() -> Iterator[type]:
    """Keras's own optimizer classes and their bases, each once."""
    optimizers = _keras().optimizers
    public = [one for one in vars(optimizers).values() if isinstance(one, type)]
    bases = [base for one in public if issubclass(one, optimizers.Optimizer) for base in one.__mro__]
    return (base for base in dict.fromkeys(bases) if base.__module__.split(".")[0] == "keras")


def _inits_with_rate() -> list[type]:
    """Those whose first argument is the learning rate."""
    codes = {one: inspect.unwrap(vars(one)["__init__"]).__code__ for one in _optimizers() if "__init__" in vars(one)}
    return [one for one, code in codes.items() if code.co_varnames[1 : code.co_argcount][:1] == (_RATE,)]


_RATE = "learning_rate"


class Patch(NamedTuple):
    """One row of the table.

    Attributes:
        name: what is replaced, for messages; its last part is the attribute.
        reason: why.
        without: what does not work where it is not replaced: the rest of a sentence.
        is_needed: where Keras has changed, True raises an error, False warns and leaves Keras as it is.
        owners: finds the classes. A patch of the user's classes has none: `replace` is given each.
        parameters: parameters that the function must have. A wrapper of somebody else's that takes any is accepted.
        sets: attributes that the function must set; not asked of a wrapper.
        kind: "function", "classmethod", "property"; "new" must not exist, "any" may be a function or not exist.
        seen: the versions of Keras with which the tests have passed.
    """

    name: str
    reason: str
    without: str
    is_needed: bool
    owners: Callable[[], Iterable[type]] = tuple
    parameters: tuple[str, ...] = ("self",)
    sets: tuple[str, ...] = ()
    kind: str = "function"
    seen: str = _SEEN

    @property
    def attribute(self) -> str:
        return self.name.rpartition(".")[2]


class Applied(NamedTuple):
    """A replacement that was made: whose attribute, what was there before, what is there now."""

    patch: Patch
    owner: type
    before: Any
    ours: Any


def _scaled() -> list[type]:
    return [_keras().optimizers.LossScaleOptimizer]


_PICKLES = "Keras pickles a configuration, from which the inner optimizer would come back as a plain one"
_LOST = "a pickled or copied LossScaleOptimizer around a wrapped optimizer no longer reduces"
_OLDER = "scripts for Keras 2 use this form; see smddp_tf.compat"
_SAME_MASKS = "all ranks draw the same dropout masks and augmentations"
_HANGS = "ranks would take different steps after an infinity, and wait for each other for ever"

FIT = Patch(
    "keras.Model.fit",
    "the ranks must agree on the number of steps, and stop together",
    "ranks with different numbers of batches would wait for each other for ever",
    True,
    lambda: [_trainer()],
    ("self", "x", "epochs", "callbacks", "initial_epoch", "steps_per_epoch"),
)
EPOCH_ITERATOR = Patch(
    "TFEpochIterator.__init__",
    "`fit` must see the training data before their first batch",
    "ranks with different numbers of batches would wait for each other for ever",
    True,
    lambda: [sys.modules[_trainer().__module__].TFEpochIterator],
    sets=("_distributed_dataset",),
)
SCALED_APPLY = Patch(
    "keras.optimizers.LossScaleOptimizer.apply",
    "Keras puts a LossScaleOptimizer around a wrapped optimizer, and asks whether local gradients are finite",
    _HANGS,
    True,
    _scaled,
    ("self", "grads", "trainable_variables"),
)
SCALED_CHECK = Patch(
    "keras.optimizers.LossScaleOptimizer.check_finite",
    "a subclass with an `apply` of its own asks before anything is reduced",
    _HANGS,
    True,
    _scaled,
    ("self", "grads"),
)
SCALED_PICKLE = Patch("keras.optimizers.LossScaleOptimizer.__reduce__", _PICKLES, _LOST, False, _scaled)
SCALED_COPY = Patch("keras.optimizers.LossScaleOptimizer.__copy__", _PICKLES, _LOST, False, _scaled, kind="new")
SCALED_DEEPCOPY = Patch("keras.optimizers.LossScaleOptimizer.__deepcopy__", _PICKLES, _LOST, False, _scaled, kind="new")
FROM_CONFIG = Patch(
    "keras.optimizers.Optimizer.from_config",
    "Keras makes the plain class from the configuration of a wrapped optimizer",
    "an optimizer that is made anew from a configuration does not reduce; wrap it again",
    False,
    parameters=("cls", "config"),
    kind="classmethod",
    seen=_SEEN_2,
)
SEED = Patch(
    "keras.random.SeedGenerator.next",
    "seed generators of layers have the same state on all ranks",
    _SAME_MASKS,
    False,
    lambda: [_keras().random.SeedGenerator],
)
SEED_OWNER = Patch(
    "keras.src.utils.tracking.Tracker.add_to_store",
    "it tells which seed generators belong to layers",
    _SAME_MASKS,
    False,
    lambda: [importlib.import_module("keras.src.utils.tracking").Tracker],
    ("self", "store_name", "value"),
)
CALLABLE_VARIABLES = Patch(
    "keras.optimizers.Optimizer.variables",
    _OLDER,
    "`optimizer.variables()` does not work",
    False,
    lambda: [one for one in _optimizers() if "variables" in vars(one)],
    kind="property",
)
LR_ARGUMENT = Patch(
    "keras.optimizers.Optimizer.__init__",
    _OLDER,
    "`Adam(lr=0.1)` does not work",
    False,
    _inits_with_rate,
    ("self", _RATE),
)
READS_LR = Patch(
    "keras.optimizers.Optimizer.__getattr__",
    _OLDER,
    "`optimizer.lr` does not work",
    False,
    lambda: [_keras().optimizers.Optimizer],
    kind="any",
)
WRITES_LR = Patch(
    "keras.optimizers.Optimizer.__setattr__",
    _OLDER,
    "`optimizer.lr = 0.1` does not work",
    False,
    lambda: [_keras().optimizers.Optimizer],
    (),
)
COMPILE = Patch(
    "keras.Model.compile",
    _OLDER,
    "`compile(experimental_run_tf_function=...)` does not work",
    False,
    lambda: [next(one for one in _keras().Model.__mro__ if "compile" in vars(one))],
)
PATCHES = (
    *(FIT, EPOCH_ITERATOR, SCALED_APPLY, SCALED_CHECK, SCALED_PICKLE, SCALED_COPY, SCALED_DEEPCOPY, FROM_CONFIG),
    *(SEED, SEED_OWNER, CALLABLE_VARIABLES, LR_ARGUMENT, READS_LR, WRITES_LR, COMPILE),
)

_applied: list[Applied] = []


def applied() -> tuple[Applied, ...]:
    """What is replaced now, in the order in which that was done. `FIT` keeps the function, which has another body."""
    return tuple(_applied)


def replace(patch: Patch, make: Callable[[Any], Any], of: type | None = None) -> bool:
    """Puts `make(Keras's function)` in the place of Keras's function; does nothing where that is done.

    Args:
        patch: the row of the table.
        make: gets the function (of a class method the function inside, of a property the property; None if there is
            none) and returns what takes its place, of the same kind.
        of: a class, for a patch of users' classes: replaced is what it has or inherits.

    Returns:
        Whether Keras's function is replaced now.

    Raises:
        RuntimeError: Keras has changed, and the patch is needed. Where it is not, that is a warning.
    """
    try:
        owners = list(patch.owners()) if of is None else [_definer(of, patch.attribute)]
        found = [(owner, _checked(patch, owner)) for owner in owners]
        if not found:
            raise LookupError("no class has it")
    except (AttributeError, ImportError, LookupError, StopIteration, TypeError) as problem:
        _say_changed(patch, str(problem) or type(problem).__name__)
        return False
    for owner, plain in found:
        if _mark_of(plain) != patch.name:
            _assign(patch, owner, make(plain))
    return True


def restore(patches: Iterable[Patch]) -> None:
    """Puts back what was there, except where somebody else has replaced ours since."""
    chosen = tuple(patches)
    for one in reversed([one for one in _applied if one.patch in chosen]):
        _applied.remove(one)
        if vars(one.owner).get(one.patch.attribute) is not one.ours:
            continue
        if one.before is _ABSENT:
            delattr(one.owner, one.patch.attribute)
        else:
            setattr(one.owner, one.patch.attribute, one.before)


@functools.cache
def take_over_fit(make: Callable[[Any], Any]) -> None:
    """Puts `make(fit)` in the place of the body of Keras's `fit`; does nothing the second time.

    Other libraries replace `fit` too (autologging, tests), with and without `functools.wraps`, and may have taken hold
    of Keras's function before we came. So no attribute is replaced: that function object itself gets another body.

    Raises:
        RuntimeError: This Keras has no such function.
    """
    try:
        trainer: Any = _trainer()
        function: Any = _function_of_keras(trainer, "fit")
        _check_shape(FIT, function)
    except (AttributeError, LookupError, StopIteration, TypeError) as problem:
        return _say_changed(FIT, str(problem) or type(problem).__name__)
    plain = types.FunctionType(function.__code__, function.__globals__, function.__name__, function.__defaults__)
    plain.__kwdefaults__ = function.__kwdefaults__
    plain.__qualname__ = function.__qualname__
    trainer._smddp_fit = make(plain)
    function.__signature__ = inspect.signature(plain)
    function.__defaults__ = function.__kwdefaults__ = None
    function.__code__ = _call_of_ours.__code__
    _applied.append(Applied(FIT, trainer, plain, function))


def _call_of_ours(self: Any, *args: Any, **kwargs: Any) -> Any:
    # Runs with the globals of Keras's module: may use nothing but its arguments.
    return self._smddp_fit(*args, **kwargs)


def _function_of_keras(trainer: type, name: str) -> types.FunctionType:
    """The function that Keras defines as `trainer.name`, also where something else has that name by now."""
    module = sys.modules[trainer.__module__]

    def is_it(candidate: Any) -> bool:
        return (
            isinstance(candidate, types.FunctionType)
            and candidate.__globals__ is vars(module)
            and candidate.__code__.co_name == name
            and candidate.__qualname__ == f"{trainer.__name__}.{name}"
        )

    # Functions refer to what is global in their module.
    for candidate in (inspect.unwrap(vars(trainer).get(name)), *gc.get_referrers(vars(module))):
        if isinstance(candidate, types.FunctionType) and is_it(candidate):
            return candidate
    raise LookupError(f"no function {trainer.__name__}.{name}; import smddp_tf.keras before something replaces it")


def _definer(owner: type, attribute: str) -> type:
    """The class that `owner` has the attribute from."""
    return next(base for base in owner.__mro__ if attribute in vars(base))


def _checked(patch: Patch, owner: type) -> Any:
    """What the patch replaces.

    Raises:
        LookupError: the class has no such attribute, or a new one.
        TypeError: it has another shape.
    """
    where = f"{owner.__name__}.{patch.attribute}"
    own = vars(owner).get(patch.attribute, _ABSENT)
    plain = getattr(owner, patch.attribute, None) if own is _ABSENT else own
    if patch.kind == "property":
        if not isinstance(plain, property):
            raise TypeError(f"{where} is not a property")
        return plain
    if patch.kind == "classmethod":
        if not isinstance(plain, classmethod):
            raise TypeError(f"{where} is not a class method")
        plain = plain.__func__
    if plain is None or patch.kind == "new":
        if patch.kind == "new" and plain is not None and _mark_of(plain) != patch.name:
            raise LookupError(f"{where} exists")
        if plain is None and patch.kind not in ("new", "any"):
            raise LookupError(f"{where} does not exist")
        return plain
    _check_shape(patch, plain)
    return plain


def _check_shape(patch: Patch, function: Any) -> None:
    if not callable(function):
        raise TypeError(f"{patch.attribute} is not a function")
    if not patch.parameters or _mark_of(function) == patch.name:
        return
    parameters = inspect.signature(function).parameters
    kinds = {parameter.kind for parameter in parameters.values()}
    takes_any = {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD} <= kinds
    missing = [name for name in patch.parameters if name not in parameters]
    if missing and not takes_any:
        raise TypeError(f"{patch.attribute} has no parameter {', '.join(map(repr, missing))}")
    code = getattr(function, "__code__", None)
    if code is not None and function.__module__.split(".")[0] == "keras" and not hasattr(function, "__wrapped__"):
        unset = [name for name in patch.sets if name not in code.co_names]
        if unset:
            raise TypeError(f"{patch.attribute} does not set {', '.join(unset)}")


def _mark_of(replacement: Any) -> Any:
    return getattr(getattr(replacement, "fget", replacement), _MARK, None)


def _assign(patch: Patch, owner: type, ours: Any) -> None:
    setattr(getattr(ours, "fget", ours), _MARK, patch.name)
    ours = classmethod(ours) if patch.kind == "classmethod" else ours
    _applied.append(Applied(patch, owner, vars(owner).get(patch.attribute, _ABSENT), ours))
    setattr(owner, patch.attribute, ours)


def _say_changed(patch: Patch, found: str) -> None:
    """Says that this Keras is not what a patch was written for: as an error, or as a warning."""
    keras = importlib.import_module("smddp_tf.keras._backend").keras
    message = (
        f"smddp_tf replaces `{patch.name}`, because {patch.reason}. Keras {keras.__version__} is different: {found}. "
        f"Without the replacement {patch.without}. Seen to work: Keras {patch.seen}."
    )
    if patch.is_needed:
        raise RuntimeError(message)
    warn(message, RuntimeWarning)
