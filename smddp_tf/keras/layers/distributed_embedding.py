"""DistributedEmbedding: embedding tables that are partitioned over the ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from smddp_tf.basics import is_initialized, rank, size
from smddp_tf.collectives import graph
from smddp_tf.collectives.layouts import identity, layout_of, mark
from smddp_tf.collectives.tensor_types import TensorLike
from smddp_tf.collectives.topology_ops import traced_ranks
from smddp_tf.keras._backend import keras, needs_keras_3
from smddp_tf.keras.layers.configs import FeatureConfig, TableConfig, feature_of
from smddp_tf.keras.layers.exchange import IdCheck, exchanged, local_rows
from smddp_tf.keras.layers.placement import Layout, described, with_placements
from smddp_tf.keras.roles import running
from smddp_tf.keras.saving.sharded_variables import full_value, save_full_variables, shard_of, together

_WHOLE = 1 << 25  # elements up to which every rank draws the full table, and takes its shard
_BLOCK = 1 << 24  # elements of larger ones that are drawn at once


class _Structure:
    """The nest of features, which Keras does not look into; `flat` is in the order of `tree.flatten`."""

    def __init__(self, configs: object) -> None:
        tables: dict[str, TableConfig] = {}
        self.flat: list[FeatureConfig] = [feature_of(config, tables) for config in keras.tree.flatten(configs)]
        self.nest = keras.tree.pack_sequence_as(configs, self.flat)
        self.tables = list(tables.values())
        self.layouts: list[Layout] = []

    def flattened(self, values: object) -> list[Any]:
        flat: list[Any] = []
        keras.tree.map_structure_up_to(self.nest, lambda _, value: flat.append(value), self.nest, values)
        return flat

    def packed(self, values: object) -> Any:
        return keras.tree.pack_sequence_as(self.nest, values)


@keras.saving.register_keras_serializable(package="smddp_tf")
class DistributedEmbedding(keras.layers.Layer):
    """Embedding tables that are partitioned over the ranks, and looked up with an exchange of ids and rows.

    Takes the configurations of `keras_rs.layers.DistributedEmbedding`: objects of `smddp_tf.keras.layers` or of
    `keras_rs.layers`. Each rank holds its part of every such table, and of what the optimizer keeps for it. A step
    sends each id once from each rank, and gets rows back; gradients go the other way, and the model's optimizer
    applies their mean where the rows are. Results are those of one process with full tables.

    All ranks must make the same calls: also in `predict` and `evaluate`, where the numbers of batches must be equal.
    On one rank, or without `hvd.init()`, tables are not partitioned and nothing is exchanged.

    Files contain full tables, and load on any number of ranks. All ranks must call `model.save`; rank 0 writes.

    Example:

    >>> from smddp_tf.keras import layers
    >>> table = layers.TableConfig("users", 1_000_000, 64)
    >>> feature = layers.FeatureConfig("user", table, (None,), (None, 64))
    >>> embedding = layers.DistributedEmbedding({"user": feature})
    >>> rows = embedding({"user": tf.constant([1, 5])})["user"]  # [2, 64]

    Args:
        feature_configs: Nested structure of `FeatureConfig`.
        table_stacking: Taken for compatibility with keras_rs; has no effect.
        update_stats: The same.
        kwargs: Of `keras.layers.Layer`.

    Raises:
        ValueError: If a configuration has no meaning.
        NotImplementedError: With Keras 2, or in a function that XLA compiles on several ranks.
        tf.errors.InvalidArgumentError: On every rank, if an id of one rank is out of range.
    """

    saves_together = True  # see `sharded_variables.py`

    def __init__(
        self, feature_configs: object, *, table_stacking: object = "auto", update_stats: bool = False, **kwargs: Any
    ) -> None:
        needs_keras_3("DistributedEmbedding")
        del table_stacking, update_stats
        super().__init__(**kwargs)
        self.supports_jit = False  # the shapes of what is received are not known beforehand
        self._structure = _Structure(feature_configs)
        self._parts: list[Any] = []
        save_full_variables()

    def build(self, input_shapes: object) -> None:
        """Makes this rank's part of each table; rank 0 prints what each rank holds."""
        ranks, me = (size(), rank()) if is_initialized() else (1, 0)
        tables, itemsize = self._structure.tables, tf.as_dtype(self.variable_dtype).size
        layouts, parts = self._layouts(ranks), []
        for table, layout in zip(tables, layouts):
            initializer = initial_part(table.initializer, layout, me)
            parts.append(self.add_weight(shape=layout.held(me), name=table.name, initializer=initializer))
            mark(parts[-1], layout if layout.is_sharded else None)
        self._structure.layouts, self._parts = layouts, parts
        self.built = True
        if ranks > 1 and me == 0:
            print(f"{self.name}:\n{described([table.name for table in tables], layouts, itemsize)}", flush=True)

    def build_for_session(self) -> None:
        """Replaces the variables inside of the tables by ones for the ranks of the present session, of zeros."""
        self._structure.layouts = self._layouts(size())
        for part, layout in zip(self._parts, self._structure.layouts):
            part._shape = layout.held(rank())
            part._initialize(tf.zeros(part._shape, part.dtype))
            mark(part, layout if layout.is_sharded else None)

    def _layouts(self, ranks: int) -> list[Layout]:
        wanted = [Layout(t.vocabulary_size, t.embedding_dim, t.placement, ranks) for t in self._structure.tables]
        return with_placements(wanted, tf.as_dtype(self.variable_dtype).size)

    def call(self, inputs: object, weights: object = None) -> Any:
        """Looks the features up.

        Args:
            inputs: Nested structure of ids as that of `feature_configs`: integer tensors of shape `(batch,)` or
                `(batch, ids)`, or `tf.RaggedTensor`s of shape `(batch, None)`.
            weights: The same with a weight for each id; `None` for weights of 1. Defaults to `None`.

        Returns:
            The same structure of tensors of shape `(batch, embedding_dim)`.
        """
        structure = self._structure
        ids = [_integers(each) for each in structure.flattened(inputs)]
        of_ids = [None] * len(ids) if weights is None else structure.flattened(weights)
        rows = self._rows([tf.reshape(_values(each), [-1]) for each in ids])
        combiners = [feature.table.combiner for feature in structure.flat]
        return structure.packed([_combined(*each) for each in zip(ids, rows, of_ids, combiners)])

    def _rows(self, ids: list[Any]) -> list[Any]:
        """The row of each id, feature by feature."""
        features, tables = self._structure.flat, self._structure.tables
        check = IdCheck(self.name, features, ids)
        ids = [tf.where((i >= 0) & (i < f.table.vocabulary_size), i, 0) for i, f in zip(ids, features)]
        numbers = [[i for i, feature in enumerate(features) if feature.table is table] for table in tables]
        unique = [tf.unique(tf.concat([ids[i] for i in of_table], 0)) for of_table in numbers]
        rows: list[Any] = [None] * len(ids)
        for of_table, found, (_, position) in zip(numbers, self._looked_up([each.y for each in unique], check), unique):
            for i, positions in zip(of_table, tf.split(position, [tf.size(ids[i]) for i in of_table])):
                rows[i] = tf.gather(found, positions)
        return rows

    @graph.no_autograph
    def _looked_up(self, ids: list[Any], check: IdCheck) -> list[Any]:
        """The rows of each table that are asked for, from wherever they are."""
        for part in self._parts:  # Keras gives one that was made in a `StatelessScope` its value after `build`
            if (layout := layout_of(part)) is not None:
                mark(part, layout)
        tables = list(zip(map(identity, self._parts), self._structure.layouts, ids))
        sharded = [each for each in tables if each[1].is_sharded]
        if sharded:
            self._check_session(sharded[0][1].ranks)
            with tf.control_dependencies(traced_ranks(f"the tables of {self.name} are partitioned")):
                found, checks = iter(exchanged(sharded, check, rank(), self.compute_dtype, _received)), []
        else:
            found, checks = iter(()), [check.refuse(check.found[tf.newaxis])]
        with tf.control_dependencies(checks):
            return [
                next(found) if layout.is_sharded else local_rows(table, rows, self.compute_dtype)
                for table, layout, rows in tables
            ]

    def _check_session(self, ranks: int) -> None:
        if not is_initialized() or size() != ranks:
            raise RuntimeError(
                f"Tables of DistributedEmbedding '{self.name}' are partitioned over {ranks} ranks. Received: a session "
                f"of {size() if is_initialized() else 'no'} ranks. Make the model again, and load what was saved."
            )
        if graph.compiling():
            raise NotImplementedError(
                f"DistributedEmbedding '{self.name}' cannot be compiled by XLA, which must know the shapes of what is "
                "received beforehand. Received: jit_compile=True. Leave it out."
            )

    def compute_output_spec(self, inputs: object, weights: object = None) -> Any:
        """Shapes and dtypes of what `call` returns."""
        pairs = zip(self._structure.flattened(inputs), self._structure.flat)
        return self._structure.packed(
            [keras.KerasTensor((ids.shape[0], each.table.embedding_dim), self.compute_dtype) for ids, each in pairs]
        )

    def save_own_variables(self, store: Any) -> None:
        """Stores the full tables."""
        for number, part in enumerate(self._parts):
            store[str(number)] = part if layout_of(part) is None else full_value(part)

    def load_own_variables(self, store: Any) -> None:
        """Loads this rank's shards of the full tables."""
        for number, part in enumerate(self._parts):
            part.assign(shard_of(part, store[str(number)]))

    def get_embedding_tables(self) -> dict[str, Any]:
        """Returns the full tables by name, as NumPy arrays. All ranks must call it; only rank 0 gets them."""
        parts = zip(self._structure.tables, self._parts)
        return together(self, lambda: {table.name: full_value(part) for table, part in parts}) or {}

    def get_config(self) -> dict[str, Any]:
        """For a saved file."""
        return {**super().get_config(), "feature_configs": keras.saving.serialize_keras_object(self._structure.nest)}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Any:
        """Returns the layer that `get_config` has described."""
        features = keras.saving.deserialize_keras_object(config["feature_configs"])
        return cls(**{**config, "feature_configs": features})


def _integers(ids: TensorLike | tf.RaggedTensor) -> tf.Tensor | tf.RaggedTensor:
    """Ids as int64, of rank 1 or 2; ragged ones stay ragged."""
    ids = tf.cast(ids if isinstance(ids, tf.RaggedTensor) else tf.convert_to_tensor(ids), tf.int64)
    if ids.shape.rank not in (1, 2):
        raise ValueError(f"Ids must be of shape (batch,) or (batch, ids of a sample). Received: {ids.shape}.")
    return ids


def _values(tensor: tf.Tensor | tf.RaggedTensor) -> tf.Tensor:
    return tensor.flat_values if isinstance(tensor, tf.RaggedTensor) else tensor


def _combined(ids: Any, rows: tf.Tensor, weights: Any, combiner: str) -> tf.Tensor:
    """Combines the rows of each sample.

    Args:
        ids: integers, `(batch,)` or `(batch, ids)`; may be ragged.
        rows: the row of each id, `(number of ids, columns)`.
        weights: numbers in the shape of `ids`, or None.
        combiner: "sum", "mean" or "sqrtn".

    Returns:
        A tensor `(batch, columns)` in the dtype of `rows`.
    """
    flat = tf.ones_like(rows[:, :1]) if weights is None else tf.reshape(tf.cast(_values(weights), rows.dtype), [-1, 1])
    if ids.shape.rank == 1:
        return rows * flat if combiner == "sum" else rows  # the mean of one row is that row

    def add_up(values: tf.Tensor) -> tf.Tensor:
        if isinstance(ids, tf.RaggedTensor):
            return tf.reduce_sum(ids.with_flat_values(values), axis=1)
        return tf.reduce_sum(tf.reshape(values, tf.concat([tf.shape(ids), tf.shape(values)[1:]], 0)), axis=1)

    total = add_up(rows if weights is None else rows * flat)
    if combiner == "sum":
        return total
    return tf.math.divide_no_nan(total, add_up(flat) if combiner == "mean" else tf.sqrt(add_up(flat * flat)))


def _received(rows: tf.Tensor) -> tf.Tensor:
    """Rows from other ranks: while this rank has no data of its own, their owners get zeros for their gradients."""
    active = running.here.active
    return rows if active is None else active.contributing(rows)


def initial_part(initializer: Any, layout: Layout, rank: int) -> Callable[..., Any]:
    """An initializer for the part of `rank`.

    Tables of up to 2^25 elements begin with the values that one process would draw, if the initializer has a seed. Of
    larger ones each rank draws its own rows, in blocks, with seeds that differ.
    """
    initializer = keras.initializers.get(initializer)

    def draw(shape: tuple[int, ...], dtype: str | None = None) -> tf.Tensor:
        rows, columns = layout.part(rank)
        if not layout.is_sharded or 0 in layout.shape(rank):
            return initializer(shape, dtype=dtype)
        if layout.rows * layout.columns <= _WHOLE:
            return tf.convert_to_tensor(initializer((layout.rows, layout.columns), dtype=dtype))[rows, columns]
        blocks, step = [], max(1, _BLOCK // layout.columns)
        for number, begin in enumerate(range(0, shape[0], step)):
            seeded = initializer
            if isinstance(getattr(initializer, "seed", None), int):  # with one seed it draws the same each time
                seeded = type(initializer).from_config(initializer.get_config())
                seeded.seed = initializer.seed + number * layout.ranks + rank + 1
            block = seeded((min(step, shape[0] - begin), layout.columns), dtype=dtype)
            blocks.append(tf.convert_to_tensor(block)[:, columns])
        return tf.concat(blocks, axis=0)

    return draw
