"""One rank's rows of global batches of arrays; the other rows are not read."""

from __future__ import annotations

import importlib
from typing import Any, NamedTuple

import tensorflow as tf

from smddp_tf.keras._backend import keras

_ADAPTERS = "keras.src.trainers.data_adapters"
_READERS = 2  # batches that are gathered at a time


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
        names = ("x", "y", "sample_weight", "batch_size", "class_weight")
        arguments = {name: data.get(name) for name in names}
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
