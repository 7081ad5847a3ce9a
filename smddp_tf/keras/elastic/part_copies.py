"""Copies of partitioned variables in the memory of other ranks, for jobs that go on without ranks that they lose.

After each commit a thread sends this rank's parts to a rank of another node, or to another rank where there is one node
only. A commit counts when that has ended on all ranks; until then the one before is kept as well. When ranks were lost,
the others put the full variables together from their own parts and from those that they keep for the lost ones.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import tensorflow as tf

from smddp_tf.basics import local_rank, rank, size
from smddp_tf.collectives import ops
from smddp_tf.collectives.objects import allgather_object

_CHUNK = 1 << 21  # bytes that are sent at once; other requests are served in between
_NAME = "hvd.elastic (parts)"


@dataclasses.dataclass
class Commit:
    """The state of one rank at a commit. The lists have an entry for each variable, in the order of the state.

    Attributes:
        rank: this process's, at that time.
        layouts: of the partitioned variables; None for others.
        values: this rank's values, tensors.
        attributes: the Python objects of the state, by name.
        number: counts the commits; the same on all ranks.
        kept: by rank, the parts of other ranks that this one keeps, as bytes, in order.
    """

    rank: int
    layouts: list[Any]
    values: list[tf.Tensor]
    attributes: dict[str, Any]
    number: int = 0
    kept: dict[int, list[np.ndarray]] = dataclasses.field(default_factory=dict)

    def send(self) -> None:
        """Sends this rank's parts, and takes those of others into `kept`. All ranks call it at the same commit."""
        with tf.device("CPU:0"):
            mine = [tf.reshape(tf.bitcast(part, tf.uint8), [-1]) for part in self._own_parts()]
            if size() == 1 or not mine:
                return
            about = tf.constant([[rank() - local_rank(), *map(len, mine)]], tf.int64)
            nodes, *sizes = ops.allgather(about, name=f"{_NAME} (sizes)").numpy().T
            keepers, totals, flat = _keepers(nodes), np.sum(sizes, axis=0), tf.concat(mine, 0)
            kept = {owner: np.empty(totals[owner], np.uint8) for owner in range(size()) if keepers[owner] == rank()}
            for begin in range(0, max(totals), _CHUNK):
                chunk = flat[begin : begin + _CHUNK]
                splits = [len(chunk) if other == keepers[rank()] else 0 for other in range(size())]
                received = tf.split(*ops.alltoall(chunk, splits, name=f"{_NAME} (copies)"))
                for owner, parts in kept.items():
                    parts[begin : begin + _CHUNK] = received[owner]
        self.kept = {owner: np.split(kept[owner], np.cumsum([each[owner] for each in sizes[:-1]])) for owner in kept}

    def parts(self) -> dict[int, Iterator[np.ndarray]]:
        """The elements of the partitioned variables, one after the other, by the rank whose parts they are."""
        mine = self._own_parts()
        dtypes = [part.dtype.as_numpy_dtype for part in mine]
        kept = {owner: map(np.ndarray.view, parts, dtypes) for owner, parts in self.kept.items()}
        return {self.rank: map(np.asarray, mine), **kept}

    def _own_parts(self) -> list[tf.Tensor]:
        pairs = zip(self.layouts, self.values)
        return [tf.reshape(layout.flat(value, self.rank), [-1]) for layout, value in pairs if layout is not None]


class PartCopies:
    """The last commits of this rank. One thread sends; it ends with the process.

    Attributes:
        number: of the commit that was begun last.
        whole: the newest commit that is known to be whole: every rank has the copies that it keeps.
    """

    def __init__(self) -> None:
        self.number = 0
        self.whole: Commit | None = None
        self._last: Commit | None = None
        self._thread = ThreadPoolExecutor(1, "hvd.elastic parts")
        self._sending: Future[None] | None = None

    def begin(self, commit: Commit) -> None:
        """Has the thread send a commit, after the one before.

        Raises:
            tf.errors.OpError: the one before could not be sent.
        """
        self.finish()
        self.number += 1
        self._last = dataclasses.replace(commit, number=self.number)
        self._sending = self._thread.submit(self._send, self._last)

    def finish(self) -> None:
        """Waits until the commit that was begun last is whole; raises what `begin` does."""
        sending, self._sending = self._sending, None
        if sending is not None:
            sending.result()

    def _send(self, commit: Commit) -> None:
        commit.send()
        ops.barrier(name=f"{_NAME} (all are kept)")
        self.whole = commit

    def agreed(self, present: Commit, was_restored: bool) -> tuple[bool, Commit | None]:
        """Called on all ranks of a new session: what is this rank's share of the state that it begins with?

        Args:
            present: the values that this rank has now.
            was_restored: whether this rank has lost the last session, and has gone back.

        Returns:
            Whether there is a state; and its share, None for a rank that has come later. Where a rank has gone back, it
            is of the newest commit that is whole; every rank that was there then has it.
        """
        with contextlib.suppress(Exception):  # of a session that was lost
            self.finish()
        newest, had_state = self.whole.number if self.whole else 0, self.number > 0
        restored, numbers, begun = zip(*allgather_object((was_restored, newest, self.number), name=f"{_NAME} (newest)"))
        self.number = max(begun)
        if not any(restored):
            return self.number > 0, present if had_state else None
        return True, next((c for c in (self.whole, self._last) if c and c.number == max(numbers)), None)


def full_values(commit: Commit | None, layouts: Sequence[Any]) -> Iterator[np.ndarray]:
    """Yields the full values of partitioned variables, one after the other. All ranks call it with the same layouts.

    Args:
        commit: this rank's share; None where it has none.
        layouts: those of the commit.

    Raises:
        RuntimeError: no rank has the parts of a rank that was lost. Raised on every rank.
    """
    parts = {} if commit is None else commit.parts()
    found = allgather_object(sorted(parts), name=f"{_NAME} (whose)")
    mine = [owner for owner in parts if not any(owner in others for others in found[: rank()])]
    for layout in filter(None, layouts):
        own = {owner: next(elements) for owner, elements in parts.items()}
        pieces = [each for of_rank in allgather_object([(i, own[i]) for i in mine], name=_NAME) for each in of_rank]
        full = np.empty(layout.full_shape, pieces[0][1].dtype if pieces else np.float32)
        is_there = np.zeros(layout.full_shape, bool)
        for owner, elements in pieces:
            layout.put(full, owner, elements)
            layout.put(is_there, owner, np.ones(elements.shape, bool))
        if not is_there.all():
            raise RuntimeError(
                "Parts of variables (partition_state, DistributedEmbedding) were lost with the ranks that kept "
                f"copies of them. Received: parts of the ranks {sorted(set().union(*found))} only. The job must begin "
                "with a commit on disk: smddprun --elastic starts it again."
            )
        yield full


def _keepers(nodes: Sequence[int]) -> list[int]:
    """The rank that keeps each rank's parts, from the node of each: on another node where there is one."""
    ranks = range(len(nodes))
    elsewhere = [[q for q in ranks if nodes[q] != nodes[r]] or [q for q in ranks if q != r] for r in ranks]
    return [others[r % len(others)] for r, others in zip(ranks, elsewhere)]
