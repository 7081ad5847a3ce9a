"""Shards a `tf.data.Dataset` by files where that is possible, and reports where it is not."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from smddp_tf._warn import warn
from smddp_tf.data.agreement import RankAndSize
from smddp_tf.data.file_readers import is_ordered_at_random, look_into, part_of_files


def cut(dataset: tf.data.Dataset, who: RankAndSize, even: str | None) -> tuple[Any, dict[str, Any]]:
    """Returns this rank's shard by files, or None; and the facts that must be equal on all ranks, with the reason."""
    part, files, names, problem, unseeded = None, [], "", "", False
    try:
        reading = look_into(dataset)
        files, names = reading.counts, reading.digest
        unseeded = is_ordered_at_random(dataset)
        problem = _why_not(files, reading.counting, who.size, even)
        part = None if problem else part_of_files(dataset, who.rank, who.size)
    except (ValueError, tf.errors.OpError) as error:  # the others wait for what this rank has found
        problem = str(error)
    return part, {"files": files, "names": names, "problem": problem, "unseeded": unseeded}


def refuse_or_warn(dataset: tf.data.Dataset, by: str, who: RankAndSize, facts: dict[str, Any]) -> None:
    """Raises or warns where a dataset should not be sharded by element. `facts`: those of `cut`, or empty."""
    problem = facts.get("problem", "")
    if by == "file":
        raise ValueError(f'by="file" is not possible: {problem}. With by="element" every rank reads all files.')
    if who.size == 1:
        return
    if is_ordered_at_random(dataset):
        text = (
            "Elements are lost and others come twice: before hvd.data.shard the dataset draws an order without a seed, "
            "another one on each rank. Give `shuffle`, `list_files` or `sample_from_datasets` a seed, the same on all "
            "ranks, or shuffle by shard(dataset, shuffle=...)."
        )
        if by == "auto":
            raise ValueError(f"{text} Cut by file it would be right, but {problem}.")
        if who.rank == 0:
            warn(text)
    if facts.get("files") and who.rank == 0:
        warn(f"Every rank reads all files, because they cannot be shared out: {problem}.")


def _why_not(files: list[int], counting: str, size: int, even: str | None) -> str:
    if not files:
        return (
            "the dataset reads no files, or not by TFRecordDataset, TextLineDataset or FixedLengthRecordDataset. Where "
            "`map` reads them, shard the names: shard(tf.data.Dataset.from_tensor_slices(names)).map(read)"
        )
    if min(files) < size:
        return f"it needs a file for each of {size} ranks, better a multiple. Received: {min(files)} files"
    if counting:
        return f"after the files are read comes a {counting}, which each rank would count for itself. Do it after shard"
    if even == "drop":
        return 'even="drop" asks for parts of equal length, which files do not give. Leave `even` out'
    return ""
