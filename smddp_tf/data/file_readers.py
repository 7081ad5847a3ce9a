"""Datasets that read files: finds the files, and shards them by TensorFlow's own AutoShard.

The only module that uses private attributes of tf.data. Where a TensorFlow has other ones, `look_into` finds no files
or `part_of_files` raises an error with the reason, and data are sharded by element.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import tensorflow as tf

# As AutoShard knows them.
_READER = re.compile(r"(\w*Record|RecordIO|SSTable|TextLine)Dataset(V\d)?")
# Transformations that count elements: after sharding by file each rank would count its own.
_COUNTING = frozenset({"_TakeDataset", "_SkipDataset", "_TakeWhileDataset", "_ShardDataset"})
_AT_ONCE = 4096


class Reading(NamedTuple):
    """The files that a dataset reads."""

    counts: list[int]  # of each reader in it, its files; none: it reads no files, or by functions not known here
    digest: str  # of the names in their order before any shuffle, without what they have in common at the beginning
    names: list[str]  # of the files, as they are found
    counting: str  # a transformation of what was read that counts elements, such as `take`; else ""


def look_into(dataset: tf.data.Dataset) -> Reading:
    """Reads the names of the files of a dataset, and how it reads them."""
    sources = list(_sources(dataset))
    names_of = [_names(_before_shuffles(source)) for source, _ in sources]
    names = [name for source_names in names_of for name in source_names]
    common = len(os.path.commonprefix(names))  # noqa: RUF071 - names may be URLs
    digest = hashlib.sha256("\n".join(name[common:] for name in names).encode(errors="surrogateescape")).hexdigest()
    counts = [_count(source) for source, _ in sources]
    return Reading(counts, digest[:12], names, next((each for _, each in sources if each), ""))


def is_ordered_at_random(dataset: tf.data.Dataset) -> bool:
    """Returns whether a transformation, such as `shuffle`, has no seed: the order then differs between ranks."""
    drawing = [each for each in _made_of(dataset) if type(each).__name__ in ("_ShuffleDataset", "_RandomDataset")]
    return any(int(getattr(each, "_seed", 1)) == int(getattr(each, "_seed2", 1)) == 0 for each in drawing)


def part_of_files(dataset: tf.data.Dataset, rank: int, size: int) -> tf.data.Dataset:
    """Returns a rank's shard of a dataset when each rank takes every size-th file, before shuffles of the names.

    Raises:
        ValueError: it cannot be sharded by file; the text says why.
    """
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.FILE
    try:
        from tensorflow.python.data.experimental.ops.distribute import _AutoShardDataset

        return _AutoShardDataset(dataset.with_options(options), size, rank)
    except tf.errors.OpError as error:
        raise ValueError(f"TensorFlow's AutoShard finds no files to share out ({_first_line(error)})") from error
    except (ImportError, AttributeError, TypeError) as error:
        raise ValueError(f"TensorFlow {tf.__version__} has no AutoShard as it is known here ({error})") from error


def _sources(dataset: tf.data.Dataset, counting: str = "") -> Iterator[tuple[Any, str]]:
    """Yields the datasets of file names, each with the transformation that counts elements after they were read."""
    if (names := getattr(dataset, "_filenames", None)) is not None:
        yield names, counting
    elif _reads(getattr(dataset, "_map_func", None)):
        yield dataset._inputs()[0], counting
    else:
        kind = type(dataset).__name__
        for each in dataset._inputs():
            yield from _sources(each, kind.strip("_") if kind in _COUNTING else counting)


def _reads(function: object) -> bool:
    graph = getattr(getattr(function, "function", None), "graph", None)
    if graph is None or not any("Dataset" in operation.type for operation in graph.get_operations()):
        return False
    definition = graph.as_graph_def()
    nodes = [*definition.node, *(node for inner in definition.library.function for node in inner.node_def)]
    return any(_READER.fullmatch(node.op) for node in nodes)


def _made_of(dataset: tf.data.Dataset) -> Iterator[Any]:
    yield dataset
    for each in dataset._inputs():
        yield from _made_of(each)


def _before_shuffles(source: tf.data.Dataset) -> Any:
    """Returns the names before they are shuffled or repeated: the same on all ranks, and finite."""
    changed = [each for each in _made_of(source) if type(each).__name__ in ("_ShuffleDataset", "_RepeatDataset")]
    return changed[-1]._inputs()[0] if changed else source


def _names(source: tf.data.Dataset) -> list[str]:
    batches = source.batch(_AT_ONCE).as_numpy_iterator()
    parts = [part.ravel().tolist() for batch in batches for part in tf.nest.flatten(batch)]
    return [os.fsdecode(name) for part in parts for name in part if isinstance(name, bytes)]


def _count(source: tf.data.Dataset) -> int:
    """Counts the files, or groups of files, that can be distributed over the ranks."""
    if source.cardinality() == tf.data.INFINITE_CARDINALITY:
        source = _before_shuffles(source)
    return int(source.reduce(0, lambda count, *_: count + 1))


def _first_line(error: tf.errors.OpError) -> str:
    return re.sub(r"\{\{.*?\}\} ?", "", error.message).splitlines()[0].partition(": ")[0]
