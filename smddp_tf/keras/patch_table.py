"""The table of the changes to Keras's own classes: what is replaced, why, and what happens where Keras has changed.

`patches.py` makes the changes. The code that replaces a function of Keras is in the module that needs it.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

_RATE = "learning_rate"
_SEEN = "3.3.3, 3.4.1, 3.5.0, 3.9.2, 3.11.3, 3.12.4 and 3.15"  # the versions of tools/test_matrix.py
_SEEN_OF_BOTH = f"2.16 to 2.21 (tf_keras), {_SEEN}"


def _keras() -> Any:
    return importlib.import_module("keras")


def is_of_keras(thing: object) -> bool:
    """Whether a class or a function is one of Keras's own."""
    return (getattr(thing, "__module__", None) or "").split(".")[0] == "keras"


def definer(owner: type, attribute: str) -> type:
    """The class that `owner` has the attribute from."""
    return next(base for base in owner.__mro__ if attribute in vars(base))


def _trainers() -> list[type]:
    """The class of the backend below `Model`; `Model` itself may have what other libraries have put there."""
    return [next(base for base in _keras().Model.__mro__[1:] if "make_train_function" in vars(base))]


def _optimizers() -> Iterator[type]:
    """Keras's own optimizer classes and their bases, each once."""
    optimizers = _keras().optimizers
    public = [one for one in vars(optimizers).values() if isinstance(one, type)]
    bases = [base for one in public if issubclass(one, optimizers.Optimizer) for base in one.__mro__]
    return filter(is_of_keras, dict.fromkeys(bases))


def _inits_with_rate() -> list[type]:
    """Returns the classes whose first argument is the learning rate."""
    codes = {one: inspect.unwrap(vars(one)["__init__"]).__code__ for one in _optimizers() if "__init__" in vars(one)}
    return [one for one, code in codes.items() if code.co_varnames[1 : code.co_argcount][:1] == (_RATE,)]


class Patch(NamedTuple):
    """One row of the table.

    Attributes:
        name: what is replaced, for messages; its last part is the attribute.
        reason: why.
        without: what does not work where it is not replaced: the rest of a sentence.
        is_needed: where Keras has changed, True raises an error, False warns and leaves Keras as it is.
        owners: finds the classes, where they are not the one that `name` names. A patch of the user's classes needs
            none: `replace` is given each.
        parameters: parameters that the function must have. A wrapper that takes any parameters is accepted.
        sets: attributes that the function must set; not asked of a wrapper.
        kind: "function", "classmethod", "property" or "module"; "new" must not exist, "any" may be a function or not
            exist.
        seen: the versions of Keras with which the tests have passed.
    """

    name: str
    reason: str
    without: str
    is_needed: bool
    owners: Callable[[], Iterable[type]] | None = None
    parameters: tuple[str, ...] = ("self",)
    sets: tuple[str, ...] = ()
    kind: str = "function"
    seen: str = _SEEN

    @property
    def attribute(self) -> str:
        return self.name.rpartition(".")[2]

    def found_owners(self) -> list[Any]:
        """Returns the classes, or modules; what it raises where Keras has none is up to Keras."""
        if self.owners is not None:
            return list(self.owners())
        return [pkgutil.resolve_name(self.name.rpartition(".")[0])]


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
    _trainers,
    ("self", "x", "epochs", "callbacks", "initial_epoch", "steps_per_epoch"),
)
EPOCH_ITERATOR = Patch(
    "TFEpochIterator.__init__",
    "`fit` must see the training data before their first batch",
    "ranks with different numbers of batches would wait for each other for ever",
    True,
    lambda: [sys.modules[trainer.__module__].TFEpochIterator for trainer in _trainers()],
    sets=("_distributed_dataset",),
)
_SCALE = "keras.optimizers.LossScaleOptimizer"


def _scaled(method: str, reason: str, *parameters: str) -> Patch:
    return Patch(f"{_SCALE}.{method}", reason, _HANGS, True, parameters=("self", "grads", *parameters))


_AROUND = "Keras puts a LossScaleOptimizer around a wrapped optimizer, and asks whether local gradients are finite"
SCALED_APPLY = _scaled("apply", _AROUND, "trainable_variables")
SCALED_CHECK = _scaled("check_finite", "a subclass with an `apply` of its own asks before anything is reduced")
SCALED_PICKLE = Patch(f"{_SCALE}.__reduce__", _PICKLES, _LOST, False)
SCALED_COPY = Patch(f"{_SCALE}.__copy__", _PICKLES, _LOST, False, kind="new")
SCALED_DEEPCOPY = Patch(f"{_SCALE}.__deepcopy__", _PICKLES, _LOST, False, kind="new")
FROM_CONFIG = Patch(
    "keras.optimizers.Optimizer.from_config",
    "Keras makes the plain class from the configuration of a wrapped optimizer",
    "an optimizer that is made again from a configuration does not reduce; wrap it again",
    False,
    parameters=("cls", "config"),
    kind="classmethod",
    seen=_SEEN_OF_BOTH,
)
SEED = Patch(
    "keras.random.SeedGenerator.next",
    "seed generators of layers have the same state on all ranks",
    _SAME_MASKS,
    False,
)
SEED_OWNER = Patch(
    "keras.src.utils.tracking.Tracker.add_to_store",
    "it tells which seed generators belong to layers",
    _SAME_MASKS,
    False,
    parameters=("self", "store_name", "value"),
)


def _older(name: str, form: str, **more: Any) -> Patch:
    return Patch(name, _OLDER, f"`{form}` does not work", False, **more)


def _with_variables() -> list[type]:
    return [one for one in _optimizers() if "variables" in vars(one)]


_OF_OPTIMIZER = "keras.optimizers.Optimizer"
CALLABLE_VARIABLES = _older(
    f"{_OF_OPTIMIZER}.variables", "optimizer.variables()", owners=_with_variables, kind="property"
)
LR_ARGUMENT = _older(f"{_OF_OPTIMIZER}.__init__", "Adam(lr=0.1)", owners=_inits_with_rate, parameters=("self", _RATE))
READS_LR = _older(f"{_OF_OPTIMIZER}.__getattr__", "optimizer.lr", kind="any")
WRITES_LR = _older(f"{_OF_OPTIMIZER}.__setattr__", "optimizer.lr = 0.1", parameters=())
COMPILE = _older(
    "keras.Model.compile",
    "compile(experimental_run_tf_function=...)",
    owners=lambda: [definer(_keras().Model, "compile")],  # Keras looks whether `Model` has one of its own
)
_DISTRIBUTION = "`import smddp_tf.keras.distribution` makes keras.distribution work on the TensorFlow backend"


def _distribution(name: str, without: str, *parameters: str, also: str = "", **more: Any) -> Patch:
    return Patch(name, f"{_DISTRIBUTION}{also}", without, True, parameters=parameters, **more)


BACKEND_FUNCTIONS = _distribution(
    "keras.src.distribution.distribution_lib.distribution_lib",
    "keras.distribution knows nothing of the ranks",
    kind="module",
)
_GLOBAL = "keras.src.backend.common.global_state"
_DROPPED = ", also after `clear_session`, which drops it together with Keras's global state"
_CLEARED = "each rank trains alone after `keras.utils.clear_session()`"
GET_GLOBAL = _distribution(f"{_GLOBAL}.get_global_attribute", _CLEARED, "name", also=_DROPPED)
SET_GLOBAL = _distribution(f"{_GLOBAL}.set_global_attribute", _CLEARED, "name", "value", also=_DROPPED)
MODEL_PARALLEL = Patch(
    "keras.distribution.ModelParallel.__init__",
    f"{_DISTRIBUTION}, where each rank stores its parts of weights that a layout map divides",
    "ModelParallel trains as DataParallel does, with full weights on each rank",
    False,
)
_PARTS = "`evaluate` shows the metrics of each rank's part of the data"
EVALUATE = _distribution(
    "keras.Model.evaluate", _PARTS, "self", "x", "y", "verbose", "callbacks", "return_dict", owners=_trainers
)
PREDICT = _distribution(
    "keras.Model.predict", "`predict` returns each rank's part", "self", "x", "batch_size", "verbose", owners=_trainers
)
_UNWRAPPED = ", where optimizers reduce without being wrapped"
_OWN_LOOPS = "`train_on_batch` and loops of your own do not reduce"
APPLY = _distribution(f"{_OF_OPTIMIZER}.apply", _OWN_LOOPS, "self", "grads", "trainable_variables", also=_UNWRAPPED)


def _of_losses(name: str, *parameters: str, owners: Callable[[], list[type]] | None = None) -> Patch:
    reason, without = "losses are those of the batch of all ranks", "losses and means are those of each rank's rows"
    return Patch(f"keras.{name}", reason, without, True, owners, parameters)


REDUCED_LOSS = _of_losses("src.losses.loss.reduce_weighted_values", "values", "sample_weight", "mask")
COMPILED_LOSS = _of_losses("src.trainers.compile_utils.CompileLoss.call", "self")
MEAN = _of_losses("metrics.Mean.update_state", "self", "values", "sample_weight")
TRAIN_ON_BATCH = _of_losses("Model.train_on_batch", "self", owners=_trainers)
_SHARDED = "partitioned variables (DistributedEmbedding, partition_state) are saved in full, by all ranks together"
_ONE_PART = "a saved model holds rank 0's part of them only"


def _sharded_variables(name: str, parameter: str, owners: Callable[[], list[Any]] | None = None, **more: Any) -> Patch:
    return Patch(name, _SHARDED, _ONE_PART, True, owners, ("self", parameter), **more)


SAVE = _sharded_variables("keras.Model.save", "filepath")
SAVE_WEIGHTS = _sharded_variables("keras.Model.save_weights", "filepath")
EXPORT = _sharded_variables("keras.Model.export", "filepath")
SAVE_MODEL = _sharded_variables(
    "keras.saving.save_model", "filepath", lambda: [_keras().saving, _keras().models], kind="module"
)
SWAP_EMA = Patch(
    "keras.callbacks.SwapEMAWeights.set_model",
    "moving averages are partitioned over the ranks with `partition_state`",
    "SwapEMAWeights does nothing with `partition_state`",
    False,
    parameters=("self", "model"),
)
SAVE_SLOTS = _sharded_variables(f"{_OF_OPTIMIZER}.save_own_variables", "store")
LOAD_SLOTS = _sharded_variables(f"{_OF_OPTIMIZER}.load_own_variables", "store")
ADD_SLOT = _sharded_variables(f"{_OF_OPTIMIZER}.add_variable_from_reference", "reference_variable")
ADD_WEIGHT = Patch(
    "keras.Layer.add_weight",
    "weights that are made in `hvd.partition_weights`, or under a ModelParallel, are stored in parts",
    "`hvd.partition_weights` does nothing",
    True,
    parameters=("self", "initializer", "dtype", "regularizer", "constraint"),
)
SAVE_LAYER = _sharded_variables("keras.Layer.save_own_variables", "store")
LOAD_LAYER = _sharded_variables("keras.Layer.load_own_variables", "store")
# Before Keras 3.11 these two add their accumulators without a reference.
ADD_ACCUMULATORS = _sharded_variables(
    "keras.optimizers.Adagrad.build", "var_list", lambda: [_keras().optimizers.Adagrad, _keras().optimizers.Ftrl]
)
PATCHES = tuple(row for row in list(globals().values()) if isinstance(row, Patch))
