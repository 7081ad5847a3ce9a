"""Whether all ranks have the same data: each takes its rows of a global batch, so rows of other batches would be lost.

Arrays are compared before they are used, batches of other data while they are read.
"""

from __future__ import annotations

import functools
import zlib
from typing import Any, NoReturn

import numpy as np
import tensorflow as tf

from smddp_tf import basics
from smddp_tf.collectives.rank_facts import numbers_of_ranks, warn_on_rank_zero
from smddp_tf.data import arrays
from smddp_tf.keras._backend import keras

OWN_PARTS = "For data that each rank brings itself: keras.distribution.DataParallel(auto_shard_dataset=False)."

ASKS = "keras.distribution.DataParallel"
_VALUES = 1 << 20  # of an array
_ROWS = (8, 4096)  # of an array: at least, at most
_VALUES_OF_BATCH = 1024  # of one of its tensors
_KEPT = 1024  # batches: more than one rank reads ahead
_FACTOR = 1_000_003  # makes the order of batches count


def checksums(data: object) -> dict[str, int]:
    """Checksums of arrays (x, y, sample_weight): of all values of small ones, of rows all over large ones."""
    named = zip(("x", "y", "sample_weight"), keras.utils.unpack_x_y_sample_weight(data))
    return {f"checksum of {name}": _checksum(part) for name, part in named if part is not None}


def _checksum(structure: object) -> int:
    leaves = tf.nest.flatten(keras.tree.flatten(structure), expand_composites=True)
    return functools.reduce(lambda crc, leaf: zlib.crc32(_sample(leaf), crc), leaves, 0)


def _sample(leaf: Any) -> bytes:
    if leaf is None:
        return b""
    count, width = leaf.shape[0], int(np.prod(leaf.shape[1:]))
    chosen = np.clip(_VALUES // max(width, 1), *_ROWS)
    indices = np.unique(np.linspace(0, max(count - 1, 0), chosen).astype(np.int64)[: count * chosen])
    if hasattr(leaf, "tocsr"):
        return leaf.tocsr()[indices].data.tobytes()  # type: ignore[no-any-return]
    values = np.asarray(arrays.rows(leaf, indices))
    return repr(values.tolist()).encode() if values.dtype.hasobject else values.tobytes()


class Digests:
    """Running digests of the global batches that this rank reads, in the present pass over a dataset.

    One is of the labels (of tensors with one or two dimensions in y), which are equal also where each rank draws
    augmentations of its own; the other one is of everything.
    """

    _has_warned = False  # once in a process

    def __init__(self) -> None:
        self._next = 1  # the batch before which the ranks are compared again
        with tf.init_scope(), tf.device("/CPU:0"):
            self._read = tf.Variable(0, dtype=tf.int64, trainable=False)
            self._running = tf.Variable(tf.zeros([_KEPT, 2], tf.int64), trainable=False)

    def note(self, number: tf.Tensor, batch: object) -> None:
        """In the pipeline, for each batch.

        Args:
            number: of the batch in this pass, from 0.
        """
        labels = batch[1] if isinstance(batch, (tuple, list)) and len(batch) in (2, 3) else ()
        digests = [_digest([leaf for leaf in _tensors(labels) if leaf.shape.rank in (1, 2)]), _digest(_tensors(batch))]
        before = tf.where(number > 0, self._running[(number - 1) % _KEPT], 0)
        noted = self._running.scatter_nd_update([[number % _KEPT]], [before * _FACTOR + tf.stack(digests)])
        with tf.control_dependencies([noted]):  # `compare`, on another thread, reads the number first
            self._read.assign(number + 1)

    def begin_batch(self, batch: int) -> None:
        """Compares the ranks before the batches 1, 2, 4, 8 and so on of a `fit`; all call it at the same step."""
        if batch >= self._next:
            self._next = 2 * batch
            self.compare(False)

    def compare(self, ended: bool) -> None:
        """Compares what all ranks have read; all call it at the same step.

        Args:
            ended: whether they have read everything.

        Raises:
            ValueError: they have read batches with other labels. Raised on every rank.
        """
        read = numbers_of_ranks([int(self._read)], f"{ASKS} (how many batches were read)")[:, 0]
        if ended and (read != read[0]).any():
            _refuse(f"{read.tolist()} batches, by rank")
        running = numbers_of_ranks(self._running[(read.min() - 1) % _KEPT].numpy(), f"{ASKS} (were they the same)")
        others = [np.flatnonzero(of_ranks != of_ranks[0]).tolist() for of_ranks in running.T]
        where = f"than on rank 0, in the first {read.min()} batches of a pass over the data"
        if others[0] and read.min() > 0:
            _refuse(f"other labels on ranks {others[0]} {where}")
        if others[1] and read.min() > 0 and not Digests._has_warned:
            Digests._has_warned = True
            warn_on_rank_zero(
                f"Inputs under keras.distribution.DataParallel are others on ranks {others[1]} {where}. Where each "
                "rank draws augmentations of its own, that does no harm. If ranks read other samples, or in another "
                f"order, some are lost: seed all ranks alike. {OWN_PARTS}"
            )


def _refuse(received: str) -> NoReturn:
    raise ValueError(
        "keras.distribution.DataParallel takes each rank's rows of the same global batches, so all ranks must read "
        f"the same batches in the same order. Received: {received} (this is rank {basics.rank()}). Seed generators "
        "and shuffling alike on all ranks, for example with keras.utils.set_random_seed, and leave out "
        f"`deterministic=False`. {OWN_PARTS}"
    )


def _digest(leaves: list[Any]) -> Any:
    digest = tf.zeros([], tf.int64)
    for leaf in leaves:
        flat = tf.reshape(leaf, [-1])
        flat = flat[:: tf.maximum(tf.size(flat) // _VALUES_OF_BATCH, 1)]
        digest = digest * _FACTOR + tf.strings.to_hash_bucket_fast(tf.io.serialize_tensor(flat), 2**62)
    return digest


def _tensors(structure: object) -> list[Any]:
    """Without absent components."""
    leaves = tf.nest.flatten(structure, expand_composites=True)
    return [leaf for leaf in leaves if tf.is_tensor(leaf) and leaf.dtype not in (tf.variant, tf.resource)]
