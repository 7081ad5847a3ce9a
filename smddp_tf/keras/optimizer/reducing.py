"""The class a wrapped optimizer gets: the user's own class, with gradients reduced before they are applied."""

from __future__ import annotations

import contextlib
import functools
import math
from typing import Any, NamedTuple

import tensorflow as tf

from smddp_tf.compression import Compression
from smddp_tf.gradients import reduced_once
from smddp_tf.gradients.local_sources import LocalSources, reduce_all_but
from smddp_tf.gradients.reducer import GradientReducer
from smddp_tf.gradients.sparse import densified
from smddp_tf.keras._backend import keras
from smddp_tf.keras.fit import active_ranks, same_batches
from smddp_tf.keras.optimizer.accumulation import Passes, innermost, stays_local
from smddp_tf.keras.optimizer.applying import apply_reduced
from smddp_tf.keras.optimizer.made_anew import configuration, notice_from_config
from smddp_tf.keras.optimizer.wrapping import attach_reducer, reducer_on, settings_of_class, wrapped_class
from smddp_tf.process_sets import ProcessSet, global_process_set
from smddp_tf.reduce_op import Average


class ReductionSettings(NamedTuple):
    """How an optimizer reduces. Plain values, so that a pickled optimizer can carry them."""

    name: str | None = None
    device_dense: str = ""
    device_sparse: str = ""
    compression: Any = Compression.none
    sparse_as_dense: bool = False
    gradient_predivide_factor: float = 1.0
    op: int = Average
    backward_passes_per_step: int = 1
    average_aggregated_gradients: bool = False
    process_set: ProcessSet = global_process_set
    scale_local_gradients: bool = True


class OptimizerReducer:
    """The reducer of one optimizer object, and whether its gradients are already reduced.

    `passes` adds up the gradients of several calls first; None where every call is an update. `local` holds the
    variables whose gradients stay on this rank. `names` and `is_inherited` are for `made_anew.py`: the names in
    the configurations of its optimizers, and whether Keras made the optimizer from one of them, nobody wrapping it.

    It hangs on the optimizer as a plain Python attribute that neither Keras nor TensorFlow tracks: it is in no saved
    file and no checkpoint.
    """

    def __init__(self, settings):
        self.settings = settings
        self.names: dict[str, str] = {}
        self.is_inherited = False
        self.local = LocalSources(settings.scale_local_gradients, settings.process_set)
        count = settings.backward_passes_per_step
        self.passes = Passes(count, settings.average_aggregated_gradients) if count > 1 else None
        self._paused = False
        self._window = None
        self._new_reducer()  # refuses wrong settings now, not when training begins

    def __call__(self, grads, variables):
        if self._paused:
            return grads
        active = active_ranks.current()
        if active is not None and self._window is None and self.local.indices(variables):
            grads = active.masked(grads)
        return self.local.reduce_others(self._reduce_all_but_scales, grads, variables)

    def _reduce_all_but_scales(self, grads, variables):
        """Float8 layers pass new scales off as gradients; they describe this rank's own numbers and stay here."""
        scales = {i for i, variable in enumerate(variables) if stays_local(variable)}
        return reduce_all_but(scales, self._reduce_shared, grads, variables)

    def refuse_reduced(self, grads, variables):
        """Raises a ValueError where gradients that would be reduced here come from `hvd.DistributedGradientTape`."""
        kept = self.keeps(variables)
        shared = [None if index in kept else grad for index, grad in enumerate(grads)]
        reduced_once.refuse(shared, variables, self.settings.process_set)

    def _reduce_shared(self, grads, variables):
        if same_batches.is_watching():
            same_batches.note(grads)
        active = active_ranks.current()
        reducer = self._new_reducer(gradient_predivide_factor=self._range_of_float16(variables))
        if active is None:
            return reducer(grads, variables)
        return active.reduced(reducer, grads, variables, self.settings.op, self.settings.process_set, self._window)

    def keeps(self, variables):
        """The indices of the variables whose gradients stay on this rank, for whatever reason."""
        return self.local.indices(variables) | {i for i, variable in enumerate(variables) if stays_local(variable)}

    def _new_reducer(self, **changed):
        arguments = {**self.settings._asdict(), **changed}
        for ours in ("name", "backward_passes_per_step", "average_aggregated_gradients", "scale_local_gradients"):
            del arguments[ours]
        return GradientReducer(self.settings.name or "optimizer", **arguments)

    def _range_of_float16(self, variables):
        """Returns what to divide by before the sum: where gradients are float16, the sum of several could overflow.

        It is a power of two, which costs float32 gradients of the same optimizer no accuracy. Not for a float16 *wire*
        (`Compression.fp16`), where small float32 gradients would be lost.
        """
        narrow = any(tf.as_dtype(variable.dtype) == tf.float16 for variable in variables)
        if not narrow or self.settings.op != Average or self.settings.gradient_predivide_factor != 1.0:
            return self.settings.gradient_predivide_factor
        return float(2 ** math.ceil(math.log2(self.local.ranks())))

    def dense(self, grads, variables):
        """Returns `grads` as dense tensors, which is what can be added up over several passes.

        Raises:
            ValueError: There are `tf.IndexedSlices`, and `sparse_as_dense` was not asked for.
        """
        for grad, variable in zip(grads, variables):
            if isinstance(grad, tf.IndexedSlices) and not self.settings.sparse_as_dense:
                name = getattr(variable, "path", variable.name)
                raise ValueError(
                    "`backward_passes_per_step` adds up gradients, so they must be dense. Received: "
                    f"backward_passes_per_step={self.settings.backward_passes_per_step} and tf.IndexedSlices for "
                    f"variable {name!r}. Give `sparse_as_dense=True` to hvd.DistributedOptimizer."
                )
        return [
            densified(grad, tf.TensorShape(variable.shape)) if isinstance(grad, tf.IndexedSlices) else grad
            for grad, variable in zip(grads, variables)
        ]

    def open_window(self):
        """Returns what counts the active passes of this rank, for an optimizer with several passes per update."""
        if self._window is None:
            self._window = active_ranks.Window()
        return self._window

    @property
    def is_paused(self):
        """True while gradients pass through."""
        return self._paused

    @contextlib.contextmanager
    def paused(self):
        """Inside, gradients pass through: somebody further out has reduced them."""
        before, self._paused = self._paused, True
        try:
            yield
        finally:
            self._paused = before


def reducer_of(optimizer):
    """Returns the optimizer's reducer. One made from a wrapped class gets it here, with the settings of its class."""
    reducer = reducer_on(optimizer)
    return attach(optimizer) if reducer is None else reducer


def attach(optimizer, settings=None, local=None):
    """Makes `optimizer` reduce: changes its class in place, which keeps its state.

    With a `LossScaleOptimizer` the one inside shares the reducer, because clipping and accumulation happen there.

    Args:
        settings: how. Defaults to the settings of the optimizer's class, a wrapped one.
        local: `LocalSources` of another optimizer, whose variables are local to this one too.
    """
    from smddp_tf.keras.optimizer.loss_scaling import reduce_before_finite_check  # which asks this module

    reduce_before_finite_check()
    reducer = OptimizerReducer(settings_of_class(optimizer) if settings is None else settings)
    if local is not None:
        reducer.local.add_those_of(local)
    for each in {id(o): o for o in (optimizer, innermost(optimizer))}.values():
        notice_from_config(type(each), attach)
        attach_reducer(each, wrap_class(type(each), reducer.settings), reducer)
    return reducer


def wrap_class(optimizer_class, settings=None):
    """Returns the subclass of `optimizer_class` that reduces gradients; it saves under the name of `optimizer_class`.

    A wrapped class is returned as it is, unless `settings` say how to reduce.

    Example:

    >>> model = keras.models.load_model("model.keras")
    >>> model.optimizer.__class__ = wrap_class(type(model.optimizer))

    which is `hvd.DistributedOptimizer(model.optimizer)` with default settings.
    """
    if settings is None and hasattr(optimizer_class, "_smddp_wraps"):
        return optimizer_class
    return wrapped_class(optimizer_class, _members_for, settings or ReductionSettings())


def _members_for(optimizer_class):
    """Overrides the hooks that every Keras 3 has. `fit`, `apply_gradients` and loops all end in `apply`.

    Reducing there, before the wrapped class sees the gradients, makes clipping, weight decay, EMA and the finite check
    of a `LossScaleOptimizer` work on the same numbers on every rank.

    An optimizer with `gradient_accumulation_steps` is left to accumulate on each rank and reduces where Keras updates.
    Keras 3.3 clips every pass, later ones clip the mean of the passes; here clipping waits for the reduction.
    """

    def apply(self, grads, trainable_variables=None):
        plain = functools.partial(optimizer_class.apply, self)
        apply_reduced(self, reducer_of(self), plain, grads, trainable_variables)

    def _clip_gradients(self, grads):
        return grads if self.gradient_accumulation_steps else optimizer_class._clip_gradients(self, grads)

    def _backend_update_step(self, grads, trainable_variables, learning_rate):
        if self.gradient_accumulation_steps:
            grads = optimizer_class._clip_gradients(self, reducer_of(self)(grads, trainable_variables))
        optimizer_class._backend_update_step(self, grads, trainable_variables, learning_rate)

    def get_config(self):
        return configuration(optimizer_class.get_config(self), reducer_of(self))

    def __reduce__(self):
        # Keras pickles an optimizer as a saved file plus a method of its class. Our class cannot be imported by name,
        # the wrapped one can.
        rebuild, arguments = optimizer_class.__reduce__(self)
        return _unpickle, (optimizer_class, rebuild.__name__, arguments, reducer_of(self).settings)

    def __deepcopy__(self, memo=None):
        rebuild, arguments = optimizer_class.__reduce__(self)
        reducer = reducer_of(self)
        return _unpickle(optimizer_class, rebuild.__name__, arguments, reducer.settings, reducer.local)

    def register_local_var(self, var):
        """Keeps the gradients of a variable on this rank. Call it before training."""
        reducer_of(self).local.add(var)

    return {
        "__module__": _module_in_saved_files(optimizer_class),
        "apply": functools.update_wrapper(apply, optimizer_class.apply),
        "_clip_gradients": _clip_gradients,
        "_backend_update_step": _backend_update_step,
        "get_config": functools.update_wrapper(get_config, optimizer_class.get_config),
        "__reduce__": __reduce__,
        "__copy__": __deepcopy__,
        "__deepcopy__": __deepcopy__,
        "register_local_var": register_local_var,
    }


def _module_in_saved_files(optimizer_class):
    """Keras looks its own classes up as `keras.optimizers.<name>`, and everybody else's in their module."""
    is_built_in = getattr(keras.optimizers, optimizer_class.__name__, None) is optimizer_class
    return "keras.optimizers" if is_built_in else optimizer_class.__module__


def _unpickle(optimizer_class, rebuild, arguments, settings, local=None):
    optimizer = getattr(optimizer_class, rebuild)(*arguments)
    attach(optimizer, settings, local)
    return optimizer
