"""Global batches: under a distribution `fit` and `evaluate` get the data of all ranks, and each takes a part of it.

A global batch is cut into one part for each rank, in the order of the ranks. So all ranks make the same number of
steps, and in each step they have together what one process has. Where the ranks do not divide a batch, some have fewer
rows than others, or none: the means over ranks are then weighted by rows (see `active_ranks.py`).
"""

from __future__ import annotations

import functools
import importlib
import inspect
import itertools
import math
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import tensorflow as tf

from smddp_tf import basics
from smddp_tf.data.agreement import agree, rank_and_size
from smddp_tf.data.partition import Partition
from smddp_tf.keras._backend import keras
from smddp_tf.keras.data_parallel.same_data import ASKS, OWN_PARTS, Digests, checksums
from smddp_tf.keras.roles.current_distribution import current, set_aside, shards_batches
from smddp_tf.keras.roles.step_hooks import rows_of

_ADAPTERS = "keras.src.trainers.data_adapters"
_READERS = 2  # batches that are gathered at a time


class Part(NamedTuple):
    """This rank's part of the data of one of Keras's iterators.

    Attributes:
        pairs: dataset of (rows, batch), float32 scalar and a batch of at least one row. One with rows 0 counts nowhere.
        rows: the rows of each batch of this rank; 0 where they differ.
        steps: the number of global batches, if it is known.
        epoch: int64 variable on which the order of shuffled arrays depends; None for other data.
        digests: compares the batches that the ranks read; None where they need not be the same, and of arrays.
    """

    pairs: Any
    rows: int
    steps: int | None = None
    epoch: Any = None
    digests: Digests | None = None


def make_iterator(
    plain_init: Callable[..., None], iterator: Any, epochs: int, *args: Any, **kwargs: Any
) -> Part | None:
    """`TFEpochIterator.__init__`: Keras makes its dataset. Returns this rank's part of it; None without a distribution.

    Args:
        epochs: how many it is for in `fit`; 0 where it is for `evaluate`.
    """
    if current() is None:
        plain_init(iterator, *args, **kwargs)
        return None
    bound = inspect.signature(plain_init).bind(iterator, *args, **kwargs)
    data = bound.arguments.get("kwargs", {})
    shards = shards_batches()
    arrays = ArrayData.of(data) if shards else None
    if arrays is not None:
        part = _part_of_arrays(arrays, bool(data.get("shuffle")))
        nothing = {"y": None, "sample_weight": None, "class_weight": None, "batch_size": None, "shuffle": False}
        data.update({"x": part.pairs, **{name: value for name, value in nothing.items() if name in data}})
    elif shards and isinstance(data.get("x"), keras.utils.PyDataset):
        _deal_batches_alike(data)
    with set_aside():
        plain_init(*bound.args, **bound.kwargs)
    if arrays is not None:
        return part
    dataset = iterator._distributed_dataset
    if shards and iterator.steps_per_epoch:
        dataset = _limited_dataset(iterator, dataset, data.get("x"), max(epochs, 1))
    return _part_of_dataset(dataset, shards)


def limited(generator: Iterable[Any], steps: int, steps_per_execution: int, epochs: int = 1) -> Iterator[Any]:
    """The batches that Keras uses in so many steps: what is read ahead is lost, and differs from rank to rank."""
    return itertools.islice(generator, math.ceil(steps / steps_per_execution) * steps_per_execution * epochs)


def _limited_dataset(iterator: Any, dataset: tf.data.Dataset, source: object, epochs: int) -> tf.data.Dataset:
    """The dataset of Keras's iterator, made again where it would read batches that no step uses."""
    names = {types.GeneratorType: "generator", keras.utils.PyDataset: "_get_iterator"}
    adapter, name = iterator.data_adapter, next((names[kind] for kind in names if isinstance(source, kind)), "")
    plain = getattr(adapter, name, None)
    if plain is None:
        return dataset
    steps, per_call = iterator.steps_per_epoch, iterator.steps_per_execution  # `steps_per_epoch` changes later on
    setattr(adapter, name, lambda: limited(plain(), steps, per_call, epochs))
    return adapter.get_tf_dataset()


def _part_of_arrays(arrays: ArrayData, shuffle: bool) -> Part:
    what = {"samples": arrays.rows, "batch_size": arrays.batch_size, "shuffle": shuffle, **checksums(arrays.structure)}
    seed = agree(rank_and_size(None, None), what, shuffle, _seed(), ASKS, OWN_PARTS)
    epoch = tf.Variable(0, dtype=tf.int64, trainable=False)
    pairs = array_batches(arrays, basics.rank(), basics.size(), seed, epoch)
    steps = arrays.steps()
    pairs = pairs.apply(tf.data.experimental.assert_cardinality(steps))
    is_even = arrays.rows % arrays.batch_size == 0 and arrays.batch_size % basics.size() == 0
    return Part(pairs, arrays.batch_size // basics.size() if is_even else 0, steps, epoch)


def _part_of_dataset(dataset: tf.data.Dataset, shards: bool) -> Part:
    """Returns the part of a dataset of global batches; or, with `shards` False, of this rank's own batches."""
    kinds = (tf.TensorSpec, tf.RaggedTensorSpec, tf.SparseTensorSpec)
    shapes = [leaf.shape for leaf in tf.nest.flatten(dataset.element_spec) if isinstance(leaf, kinds)]
    if any(shape.rank == 0 for shape in shapes):
        raise ValueError(
            "keras.distribution.DataParallel takes a dataset of global batches, which each rank takes its part of. "
            f"Received: single samples: element_spec={dataset.element_spec}. Call `dataset.batch(batch_size)`."
        )
    rows = {shape[0] if shape.rank else None for shape in shapes}
    fixed = (rows.pop() if len(rows) == 1 else None) or 0
    if not shards:
        return Part(dataset.map(_with_rows), fixed)
    rows_of_each = fixed // basics.size() if fixed % basics.size() == 0 else 0
    if dataset.options().deterministic is False:
        options = tf.data.Options()
        options.deterministic = True
        dataset = dataset.with_options(options)
    digests = Digests()
    return Part(dataset.enumerate().map(functools.partial(_cut, fixed, digests)), rows_of_each, digests=digests)


def _deal_batches_alike(data: dict[str, Any]) -> None:
    """Shuffles the batches of a PyDataset in the same order on all ranks."""
    from smddp_tf.data.py_datasets import SharedBatches

    source, shuffle = data["x"], bool(data.get("shuffle"))
    if not shuffle or source.num_batches is None:
        return
    seed = agree(rank_and_size(None, None), {"batches": source.num_batches}, True, _seed(), ASKS, OWN_PARTS)
    data.update(x=SharedBatches(source, Partition(source.num_batches, 0, 1, None, seed)), shuffle=False)


def _seed() -> int:
    """Drawn as Keras draws the order of arrays: `keras.utils.set_random_seed` repeats it."""
    with tf.device("/CPU:0"):
        return int(tf.random.uniform([], maxval=2**31 - 1, dtype=tf.int64))


def _with_rows(*parts: Any) -> Any:
    """(rows, batch), of the arguments that `map` makes of a batch."""
    batch = parts if len(parts) > 1 else parts[0]
    return tf.cast(rows_of(batch), tf.float32), batch


def _cut(fixed: int, digests: Digests, number: tf.Tensor, structure: object) -> Any:
    """(rows, part of the batch); a part without rows is one row of the batch that counts nowhere.

    Args:
        fixed: the rows of every batch; 0 where they differ.
        digests: note the whole batch.
        number: of the batch in this pass, from 0.
    """
    digests.note(number, structure)
    total = fixed or tf.cast(rows_of(structure), tf.int32)
    first, rows = rows_of_rank(total, basics.rank(), basics.size())
    length = max(rows, 1) if fixed else tf.minimum(tf.maximum(rows, 1), total)
    return tf.cast(rows, tf.float32), tf.nest.map_structure(lambda leaf: _slice(leaf, first, length), structure)


def _slice(leaf: object, first: tf.Tensor | int, length: tf.Tensor | int) -> Any:
    if isinstance(leaf, tf.SparseTensor):
        others = leaf.dense_shape[1:]
        start = tf.concat([[tf.cast(first, tf.int64)], tf.zeros_like(others)], 0)
        return tf.sparse.slice(leaf, start, tf.concat([[tf.cast(length, tf.int64)], others], 0))
    if isinstance(leaf, (tf.Tensor, tf.RaggedTensor)):
        return leaf[first : first + length]
    return leaf  # an absent component


# --- of arrays, whose other rows are not read


class ArrayData(NamedTuple):
    """Arrays as Keras understands them: checked, with class weights as sample weights.

    Attributes:
        structure: nested structure of arrays with the same first dimension.
        rows: int, that dimension.
        batch_size: int, rows of a global batch.
    """

    structure: Any
    rows: int
    batch_size: int

    @classmethod
    def of(cls, data: dict[str, Any]) -> ArrayData | None:
        """Reads the arguments of Keras's iterator.

        Args:
            data: the arguments by name.

        Returns:
            The arrays; None where the data are no arrays.
        """
        adapters = importlib.import_module(f"{_ADAPTERS}.array_data_adapter")
        arguments = {name: data.get(name) for name in ("x", "y", "sample_weight", "batch_size", "class_weight")}
        if not adapters.can_convert_arrays((arguments["x"], arguments["y"], arguments["sample_weight"])):
            return None
        adapter = adapters.ArrayDataAdapter(**arguments, steps=data.get("steps_per_epoch"))
        return cls(adapter._inputs, adapter._num_samples, adapter._batch_size)

    def steps(self) -> int:
        """Returns the number of global batches in a pass over the data."""
        return -(-self.rows // self.batch_size)


def rows_of_rank(total: tf.Tensor | int, rank: int, size: int) -> tuple[Any, Any]:
    """Divides the rows of a batch among the ranks; numbers of rows differ by at most 1.

    Args:
        total: int or integer tensor, the rows of the global batch.
        rank: the rank whose rows are returned.
        size: the number of ranks.

    Returns:
        The index of the first row and the number of rows, as `total`. Of a rank without rows the index is that of some
        row of the batch, too.
    """
    first, end = rank * total // size, (rank + 1) * total // size
    return first, end - first


def array_batches(data: ArrayData, rank: int, size: int, seed: int | None, epoch: tf.Variable) -> tf.data.Dataset:
    """Returns the dataset of (rows, batch) of one rank; see `Part.pairs`.

    Args:
        data: the arrays of all ranks.
        rank: the rank that reads.
        size: the number of ranks.
        seed: with `epoch` it decides the order of the samples; None: their own order.
        epoch: int64 variable, read when a pass over the data begins.
    """
    slicing = importlib.import_module(f"{_ADAPTERS}.array_slicing")
    with tf.device("/CPU:0"):
        arrays = [_as_tensor(slicing, array) for array in keras.tree.flatten(data.structure)]
    structure = keras.tree.lists_to_tuples(data.structure)

    def order(_: object) -> Any:
        indices = tf.range(data.rows, dtype=tf.int64)
        if seed is None:
            return indices
        return tf.random.experimental.stateless_shuffle(indices, seed=tf.stack([tf.constant(seed, tf.int64), epoch]))

    def indices_of_step(indices: tf.Tensor, step: tf.Tensor) -> Any:
        begin = step * data.batch_size
        first, rows = rows_of_rank(tf.minimum(data.rows - begin, data.batch_size), rank, size)
        return tf.cast(rows, tf.float32), indices[begin + first :][: tf.maximum(rows, 1)]

    def batch(rows: tf.Tensor, indices: tf.Tensor) -> Any:
        parts = [None if array is None else _gather(slicing, array, indices) for array in arrays]
        return rows, keras.tree.pack_sequence_as(structure, parts)

    steps = tf.data.Dataset.range(data.steps())
    passes = tf.data.Dataset.range(1).map(order)
    rows = passes.flat_map(lambda indices: steps.map(lambda step: indices_of_step(indices, step)))
    return rows.map(batch, num_parallel_calls=_READERS, deterministic=True)


def _as_tensor(slicing: Any, array: Any) -> Any:
    """A tensor, ragged tensor, or Keras's form of a sparse one; None where there is no array."""
    array = slicing.convert_to_sliceable(array, target_backend="tensorflow")
    composite = (slicing.TensorflowSparseWrapper, tf.RaggedTensor)
    return array if array is None or isinstance(array, composite) else tf.convert_to_tensor(array)


def _gather(slicing: Any, array: Any, indices: tf.Tensor) -> Any:
    if isinstance(array, slicing.TensorflowSparseWrapper):
        return slicing.slice_tensorflow_sparse_wrapper(array, indices)
    return tf.gather(array, indices, axis=0)
