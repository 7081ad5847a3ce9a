"""The autotuning of tf.data, which delays the beginning of epochs."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from smddp_tf._native import loader

_OURS = "_smddp_without_autotune"
_AHEAD = 2  # elements: what TensorFlow's implicit prefetch begins with


def without_autotune(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Returns the dataset with `options.autotune.enabled = False` and `.prefetch(2)`, unless it sets that itself.

    To end an iterator TensorFlow waits for the thread that tunes it, which sleeps the longer the older it is. Every
    epoch ends one, and all ranks wait for the unluckiest. `num_parallel_calls=tf.data.AUTOTUNE` goes on working: it
    then is a fixed number. `SMDDP_DATA_AUTOTUNE=1` returns the dataset as it is.

    TensorFlow prefetches at the end of a tuned pipeline, unasked, and of no other. A dataset that was made of what this
    function returned (`shard(...).batch(...)`) has its option already, and only gets another prefetch.
    """
    if loader.core().data_autotune():
        return dataset
    if dataset.options().autotune.enabled is None:
        options = tf.data.Options()
        options.autotune.enabled = False
        dataset = dataset.with_options(options)
    elif hasattr(dataset, _OURS) or not _is_ours(dataset):
        return dataset
    dataset = dataset.prefetch(_AHEAD)
    setattr(dataset, _OURS, True)
    return dataset


def _is_ours(dataset: Any) -> bool:
    """Whether what the dataset was made of came from `without_autotune`."""
    return hasattr(dataset, _OURS) or any(map(_is_ours, getattr(dataset, "_inputs", tuple)()))
