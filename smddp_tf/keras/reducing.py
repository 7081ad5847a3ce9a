"""The class a wrapped optimizer gets: the user's own class, with gradients reduced before they are applied."""

from __future__ import annotations

import contextlib
import functools
import itertools
import types
from typing import Any, NamedTuple

from smddp_tf.compression import Compression
from smddp_tf.keras._backend import keras
from smddp_tf.reduce_op import Average
from smddp_tf.reduction import GradientReducer

# Tells the plans of several optimizers apart (a GAN has two). An optimizer is numbered when it first reduces, which
# happens in the same order on all ranks; one that only rank 0 makes, to look into a checkpoint, takes no number.
_numbers = itertools.count()

_WRAPS = "_smddp_wraps"  # the attribute of a wrapped class that holds the user's class
_wrapped_classes: dict[type, type] = {}


class ReductionSettings(NamedTuple):
    """How an optimizer reduces. Plain values, so that a pickled optimizer can carry them."""

    name: str | None = None
    device_dense: str = ""
    device_sparse: str = ""
    compression: Any = Compression.none
    sparse_as_dense: bool = False
    gradient_predivide_factor: float = 1.0
    op: int = Average


class Reduction:
    """The reducer of one optimizer object, and whether its gradients are already reduced.

    It hangs on the optimizer as a plain Python attribute that neither Keras nor TensorFlow tracks: it is in no saved
    file and no checkpoint.
    """

    def __init__(self, settings):
        self.settings = settings
        self._paused = False
        self._reducer = None
        self._new_reducer("unused")  # refuses wrong settings now, not when training begins

    def __call__(self, grads, variables):
        if self._paused:
            return grads
        if self._reducer is None:
            self._reducer = self._new_reducer(f"{self.settings.name or 'optimizer'}.{next(_numbers)}")
        # Float8 layers pass new scales off as gradients; they describe this rank's own numbers and stay here.
        local = {i for i, variable in enumerate(variables) if getattr(variable, "overwrite_with_gradient", False)}
        reduced = self._reducer([None if i in local else grad for i, grad in enumerate(grads)], variables)
        return [grads[i] if i in local else grad for i, grad in enumerate(reduced)]

    def _new_reducer(self, key):
        arguments = self.settings._asdict()
        del arguments["name"]
        return GradientReducer(key, **arguments)

    @contextlib.contextmanager
    def paused(self):
        """Inside, gradients pass through: somebody further out has reduced them."""
        self._paused = True
        try:
            yield
        finally:
            self._paused = False


def reduced_gradients(optimizer, grads, trainable_variables):
    """Returns `grads` reduced over all ranks; what `Optimizer.apply` refuses is left to its own error."""
    grads = list(grads)
    if trainable_variables is None:
        variables = optimizer._trainable_variables if optimizer.built else []
        if len(variables) != len(grads):
            return grads
        return reduction_of(optimizer)(grads, variables)
    return reduction_of(optimizer)(grads, list(trainable_variables)) if grads else grads


def reduction_of(optimizer):
    """Returns the optimizer's `Reduction`.

    An optimizer made from a wrapped class without `DistributedOptimizer` (`type(optimizer).from_config(...)`) gets one
    with default settings here: to train without reducing, unnoticed, would be the worse answer.
    """
    reduction = vars(optimizer).get("_smddp_reduction")
    return attach(optimizer, ReductionSettings()) if reduction is None else reduction


def attach(optimizer, settings):
    """Makes `optimizer` reduce with `settings`: changes its class in place, which keeps its state."""
    reduction = Reduction(settings)
    # `object.__setattr__` goes past Keras's and TensorFlow's tracking.
    object.__setattr__(optimizer, "__class__", wrap_class(type(optimizer)))
    object.__setattr__(optimizer, "_smddp_reduction", reduction)
    return reduction


def wrap_class(optimizer_class):
    """Returns the subclass of `optimizer_class` that reduces gradients; it saves under the name of `optimizer_class`.

    Example:

    >>> model = keras.models.load_model("model.keras")
    >>> model.optimizer.__class__ = wrap_class(type(model.optimizer))

    which is `hvd.DistributedOptimizer(model.optimizer)` with default settings.
    """
    if hasattr(optimizer_class, _WRAPS):
        return optimizer_class
    if optimizer_class not in _wrapped_classes:
        _wrapped_classes[optimizer_class] = _new_class(optimizer_class)
    return _wrapped_classes[optimizer_class]


def _new_class(optimizer_class):
    """Overrides `apply`, the one hook that every Keras 3 optimizer has; `fit`, `apply_gradients` and loops end in it.

    Reducing there, before the wrapped class sees the gradients, makes clipping, weight decay, EMA and the finite check
    of a `LossScaleOptimizer` work on the same numbers on every rank.
    """

    def apply(self, grads, trainable_variables=None):
        reduced = reduced_gradients(self, grads, trainable_variables)
        return optimizer_class.apply(self, reduced, trainable_variables)

    def __reduce__(self):
        # Keras pickles an optimizer as a saved file plus a method of its class. Our class cannot be imported by name,
        # the wrapped one can.
        rebuild, arguments = optimizer_class.__reduce__(self)
        return _unpickle, (optimizer_class, rebuild.__name__, arguments, reduction_of(self).settings)

    namespace = {
        "__module__": _module_in_saved_files(optimizer_class),
        "__qualname__": optimizer_class.__qualname__,
        "__doc__": optimizer_class.__doc__,
        _WRAPS: optimizer_class,
        "apply": functools.update_wrapper(apply, optimizer_class.apply),
        "__reduce__": __reduce__,
    }
    # A single base and no slots: instances have the same memory layout, so `__class__` can be assigned.
    bases = (optimizer_class,)
    wrapped = types.new_class(optimizer_class.__name__, bases, exec_body=lambda body: body.update(namespace))
    _register_alias(optimizer_class, wrapped)
    return wrapped


def is_wrapped(optimizer):
    """True for an optimizer whose class was made by `wrap_class`."""
    return hasattr(type(optimizer), _WRAPS)


def _module_in_saved_files(optimizer_class):
    """Keras looks its own classes up as `keras.optimizers.<name>`, and everybody else's in their module."""
    is_built_in = getattr(keras.optimizers, optimizer_class.__name__, None) is optimizer_class
    return "keras.optimizers" if is_built_in else optimizer_class.__module__


def _register_alias(optimizer_class, wrapped):
    """Saves `wrapped` under the registered name of `optimizer_class`, while that name goes on loading the latter."""
    registered = keras.saving.get_registered_name(optimizer_class)
    package, separator, name = registered.partition(">")
    if not separator:
        return
    loadable = keras.saving.get_custom_objects()
    owner = loadable.get(registered)
    keras.saving.register_keras_serializable(package, name)(wrapped)
    if owner is None:
        del loadable[registered]
    else:
        loadable[registered] = owner


def _unpickle(optimizer_class, rebuild, arguments, settings):
    optimizer = getattr(optimizer_class, rebuild)(*arguments)
    attach(optimizer, settings)
    return optimizer
