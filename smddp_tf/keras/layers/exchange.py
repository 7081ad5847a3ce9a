"""Exchanges rows of sharded tables: sends ids to the ranks that have the rows, and rows back; gradients likewise.

Three alltoalls for all tables of a layer: the number of ids of each table for each rank (with the result of `IdCheck`,
so that all ranks raise the same error), the ids, and the rows as one flat tensor, as tables differ in width. The
gradient of the last one sends the gradients of the rows to their owners; the other gradients are TensorFlow's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from smddp_tf.collectives import ops
from smddp_tf.keras.layers.configs import FeatureConfig
from smddp_tf.keras.layers.placement import Layout


class IdCheck:
    """Finds ids of this rank that are out of range, and sends the result to all ranks.

    Args:
        layer: the name of the layer.
        features: the features of the layer.
        ids: for each feature, an int64 tensor of rank 1.

    Attributes:
        found: int64, [2]: the index of a feature plus 1 and an id that its table does not have; zeros if there is none.
    """

    def __init__(self, layer: str, features: Sequence[FeatureConfig], ids: Sequence[Any]) -> None:
        self._layer, self._names = layer, [feature.name for feature in features]
        self._rows = tf.constant([feature.table.vocabulary_size for feature in features], tf.int64)
        lowest = tf.stack([tf.reduce_min(each) for each in ids])  # without ids: the largest integer
        highest = tf.stack([tf.reduce_max(each) for each in ids])
        wrong = (lowest < 0) | (highest >= self._rows)
        first = tf.argmax(tf.cast(wrong, tf.int32))
        found = tf.stack([first + 1, tf.where(lowest < 0, lowest, highest)[first]])
        self.found = tf.where(tf.reduce_any(wrong), found, tf.zeros_like(found))

    def refuse(self, of_ranks: tf.Tensor) -> tf.Operation:
        """Returns the op that raises an InvalidArgumentError if a rank has an id out of range.

        Args:
            of_ranks: int64, [ranks, 2], `found` of each rank.
        """
        worst = tf.argmax(of_ranks[:, 0])
        feature = tf.maximum(of_ranks[worst, 0] - 1, 0)
        id_rank_rows = tf.strings.as_string([of_ranks[worst, 1], worst, tf.gather(self._rows, feature)])
        message = [
            f"DistributedEmbedding {self._layer}: an id is out of range. Received: feature ",
            *(tf.gather(self._names, feature), " = ", id_rank_rows[0], " on rank ", id_rank_rows[1]),
            *(". Expected: 0 <= id < ", id_rank_rows[2], ", the rows of its table."),
        ]
        return tf.debugging.Assert(tf.reduce_all(tf.equal(of_ranks[:, 0], 0)), [tf.strings.join(message)])


def local_rows(table: tf.Variable, ids: tf.Tensor, dtype: tf.DType | str) -> tf.Tensor:
    """Returns rows of a shard, [ids, columns]. The gradient has each row once.

    Args:
        table: the shard, a `tf.Variable` of shape [rows, columns].
        ids: int64 tensor of rank 1, indices of rows of the shard; repeated ones are allowed.
        dtype: dtype of the result.
    """
    unique, position = tf.unique(ids)
    return tf.cast(tf.gather(tf.gather(table, unique), position), dtype)


def exchanged(
    tables: Sequence[tuple[Any, Layout, Any]], check: IdCheck, rank: int, dtype: Any, received: Callable[[Any], Any]
) -> list[Any]:
    """Returns the rows of each table, [ids, columns] in `dtype`. All ranks must call it together.

    Args:
        tables: for each table this rank's shard, a `tf.Variable`; its layout, of a sharded table; and the ids of the
            requested rows: int64 tensor of rank 1, in range, without repetition.
        check: the check of this rank's ids.
        rank: of this process.
        dtype: the dtype in which rows and their gradients are sent.
        received: identity function that is called with the received rows; its gradient may change theirs.

    Raises:
        tf.errors.InvalidArgumentError: on every rank, where an id of one is out of range.
    """
    ranks, count = tables[0][1].ranks, len(tables)
    routes = [_Route.of(layout, ids) for _, layout, ids in tables]
    sent = tf.stack([route.counts for route in routes], axis=1)  # [ranks, tables]
    headers = tf.concat([sent, tf.tile(check.found[tf.newaxis], [ranks, 1])], axis=1)
    headers = tf.ensure_shape(ops.alltoall(headers, name="DistributedEmbedding (counts)"), [ranks, count + 2])
    counts = headers[:, :count]
    outgoing = tf.concat([route.ids[to] for to in range(ranks) for route in routes], axis=0)
    incoming, _ = ops.alltoall(outgoing, tf.reduce_sum(sent, axis=1), name="DistributedEmbedding (ids)")
    with tf.control_dependencies([check.refuse(headers[:, count:])]):
        requested = tf.split(incoming, tf.reshape(counts, [-1]), num=ranks * count)
    replies = []
    for number, (table, layout, _) in enumerate(tables):
        ids = tf.concat(requested[number::count], axis=0)
        rows = local_rows(table, ids // ranks if layout.placement == "row_wise" else ids, dtype)
        replies.append(tf.split(tf.reshape(rows, [-1]), counts[:, number] * layout.shape(rank)[1], num=ranks))
    reply = tf.concat([replies[number][to] for to in range(ranks) for number in range(count)], axis=0)
    widths = tf.constant([[layout.shape(each)[1] for _, layout, _ in tables] for each in range(ranks)], tf.int64)
    returned, _ = ops.alltoall(reply, tf.reduce_sum(counts * widths[rank], axis=1), name="DistributedEmbedding (rows)")
    parts = tf.split(received(returned), tf.reshape(sent * widths, [-1]), num=ranks * count)
    return [route.joined(parts[number::count]) for number, route in enumerate(routes)]


class _Route(NamedTuple):
    """The ids of one table, by the rank to which they are sent.

    Attributes:
        layout: the layout of the table.
        ids: for each rank, the ids that are sent to it.
        counts: int64, [ranks], the number of these ids.
        positions: for each rank, the indices of these ids among all ids; for a row-wise table only.
    """

    layout: Layout
    ids: list[Any]
    counts: Any
    positions: list[Any]

    @classmethod
    def of(cls, layout: Layout, ids: tf.Tensor) -> _Route:
        """Returns the route of `ids`, an int64 tensor of rank 1."""
        if layout.placement == "row_wise":
            owners = tf.cast(ids % layout.ranks, tf.int32)
            parts = tf.dynamic_partition(ids, owners, layout.ranks)
            positions = tf.dynamic_partition(tf.range(tf.size(ids)), owners, layout.ranks)
            return cls(layout, parts, tf.stack([tf.size(part, tf.int64) for part in parts]), positions)
        holds = [0 not in layout.shape(rank) for rank in range(layout.ranks)]
        counts = tf.cast(holds, tf.int64) * tf.size(ids, tf.int64)
        return cls(layout, [ids if held else ids[:0] for held in holds], counts, [])

    def joined(self, parts: Sequence[Any]) -> Any:
        """Returns the rows, [ids, columns], from the flat tensors that the ranks have sent."""
        widths = [self.layout.shape(rank)[1] for rank in range(self.layout.ranks)]
        if self.layout.placement == "table_wise":
            return tf.reshape(parts[self.layout.owner], [-1, self.layout.columns])
        shaped = [tf.reshape(part, [-1, width]) for part, width in zip(parts, widths) if width]
        return tf.dynamic_stitch(self.positions, shaped) if self.positions else tf.concat(shaped, axis=1)
