"""load_model: a saved model with its optimizer wrapped again."""

from __future__ import annotations

import contextlib
import importlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from smddp_tf import urls
from smddp_tf._warn import warn
from smddp_tf.compression import AnyCompressor, Compression, split
from smddp_tf.gradients.options import ReduceOptions, check_groups, partition_state_of
from smddp_tf.keras._backend import LEGACY, keras
from smddp_tf.keras.optimizer.distributed import distribute
from smddp_tf.keras.optimizer.reducing import build_again
from smddp_tf.keras.roles.optimizers import innermost
from smddp_tf.keras.saving.atomic_files import is_for_fsspec
from smddp_tf.keras.schedules import Warmup

_LEGACY_ENDINGS = (".h5", ".hdf5")


def load_model(
    filepath: str | os.PathLike[str],
    custom_optimizers: Iterable[type] | None = None,
    custom_objects: dict[str, Any] | None = None,
    compression: AnyCompressor = Compression.none,
    legacy_opts: bool = False,
    **distributed: Any,
) -> Any:
    """Loads a model and makes its optimizer reduce gradients, so that training continues where it stopped.

    The file may come from plain Keras or from a model trained with `hvd.DistributedOptimizer`: they are the same.
    Weights and the optimizer's state are restored, from `.keras` and from legacy `.h5` files (after which a model that
    plain Keras 3 has loaded cannot be trained). Either let every rank load the file, or let rank 0 load it and send
    its variables with `BroadcastGlobalVariablesCallback(0)`.

    Example:

    >>> model = hvd.load_model("checkpoint.keras")
    >>> model.fit(dataset, initial_epoch=epoch, epochs=epochs)

    Args:
        filepath: String or path, as for `keras.models.load_model`, or a URL that `fsspec` knows ("s3://...").
        custom_optimizers: List of optimizer classes of yours that the file may name. Defaults to none.
        custom_objects: Dictionary of names to classes or functions, as for `keras.models.load_model`.
        compression: What travels; see `hvd.DistributedOptimizer`. Defaults to `hvd.Compression.none`.
        legacy_opts: Taken for compatibility with Horovod; the file says which kind of optimizer it holds.
        distributed: Further arguments of `hvd.DistributedOptimizer`, such as `backward_passes_per_step`: the file, one
            of plain Keras, does not hold them.

    Returns:
        The model. One saved without `compile` has no optimizer and comes back as it is.
    """
    split(compression)  # refuses a wrong one before the file is read
    known = {each.__name__: each for each in (Warmup, *(custom_optimizers or ()))}
    known.update(custom_objects or {})
    with urls.downloaded(os.fspath(filepath)) if is_for_fsspec(filepath) else _in_own_folder(filepath) as path:
        return _loaded(path, known, compression, distributed)


@contextlib.contextmanager
def _in_own_folder(path: str | os.PathLike[str]) -> Iterator[str | os.PathLike[str]]:
    """A link to the file in a folder of this rank; the path itself where Keras needs none.

    Keras 3.4 unpacks the weights beside the file, under one name, and removes them: ranks that load a file at the same
    time would read one another's.
    """
    if LEGACY or not keras.__version__.startswith("3.4.") or not os.path.isfile(path):
        yield path
        return
    with urls.temporary_folder() as folder:
        link = Path(folder) / Path(path).name
        link.symlink_to(Path(path).resolve())
        yield link


def _loaded(filepath: Any, known: dict[str, Any], compression: AnyCompressor, distributed: dict[str, Any]) -> Any:
    model = keras.models.load_model(filepath, custom_objects=known)
    if getattr(model, "optimizer", None) is not None:
        if not LEGACY and str(filepath).endswith(_LEGACY_ENDINGS):
            _restore_optimizer(model, filepath)
        check_groups(distributed.pop("groups", None), distributed.pop("num_groups", 0))
        state = partition_state_of(distributed.pop("partition_state", None), distributed.pop("shard", None))
        settings = ReduceOptions(compression=compression, partition_state=state, **distributed).checked()
        distribute(model.optimizer, settings, copies=False)
    return model


def _restore_optimizer(model: keras.Model, filepath: Any) -> None:
    """Gives the optimizer of a legacy file its state.

    Keras 3 (3.3 to 3.15) builds it for an empty list of variables, and then fits what the file holds to nothing: the
    first step of training fails. Built for the model's variables, it has exactly the variables that were saved.
    """
    if len(innermost(model.optimizer)._trainable_variables) == len(model.trainable_variables):
        return
    h5py = importlib.import_module("h5py")
    with h5py.File(filepath, "r") as file:
        if "optimizer_weights" not in file:
            return
        legacy_format = importlib.import_module("keras.src.legacy.saving.legacy_h5_format")
        saved = [value[()] for value in legacy_format.load_optimizer_weights_from_hdf5_group(file)]
    build_again(innermost(model.optimizer), model.trainable_variables)
    if innermost(model.optimizer) is not model.optimizer:  # without the scale, which a LossScaleOptimizer has already
        keras.optimizers.Optimizer.build(model.optimizer, model.trainable_variables)
    variables = model.optimizer.variables
    if [tuple(variable.shape) for variable in variables] != [value.shape for value in saved]:
        warn(
            f"The optimizer's state in {filepath} does not fit the optimizer ({type(model.optimizer).__name__}): "
            f"expected {len(variables)} variables, found {len(saved)}, or other shapes. Training goes on without "
            "it. Save in the .keras format to keep it.",
        )
        return
    for variable, value in zip(variables, saved):
        variable.assign(value)
