"""The autotuning of tf.data, which delays the beginning of epochs."""

from __future__ import annotations

import tensorflow as tf

from smddp_tf import _loader

__all__ = ["without_autotune"]


def without_autotune(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Returns the dataset with `options.autotune.enabled = False`, unless it sets that itself.

    To end an iterator TensorFlow waits for the thread that tunes it, which sleeps the longer the older it is. Every
    epoch ends one, and all ranks wait for the unluckiest. `num_parallel_calls=tf.data.AUTOTUNE` goes on working: it
    then is a fixed number. `SMDDP_DATA_AUTOTUNE=1` returns the dataset as it is.
    """
    if dataset.options().autotune.enabled is not None or _loader.core().data_autotune():
        return dataset
    options = tf.data.Options()
    options.autotune.enabled = False
    return dataset.with_options(options)
