"""Sends tensors of strings to other ranks, as bytes. Uses TensorFlow's ops, so it also works in graphs."""

from __future__ import annotations

import tensorflow as tf

from smddp_tf._native import emit


def broadcast(text: tf.Tensor, root_rank: int, name: str) -> tf.Tensor:
    """Returns the tensor of rank `root_rank` on every rank. Takes the shape of `text` to be the same on all."""
    data = tf.io.decode_raw(tf.io.serialize_tensor(text), tf.uint8)
    size = tf.size(data, out_type=tf.int64)
    size_of_root = emit.broadcast_list([size], root_rank, f"{name}.size")[0]
    # Only the root's bytes matter; the others pass the same number.
    fitting = tf.concat([data[:size_of_root], tf.zeros([tf.maximum(size_of_root - size, 0)], tf.uint8)], 0)
    received = emit.broadcast_list([fitting], root_rank, f"{name}.data")[0]
    byte = tf.constant([bytes([value]) for value in range(256)])
    joined = tf.strings.reduce_join(tf.gather(byte, tf.cast(received, tf.int32)))
    return tf.ensure_shape(tf.io.parse_tensor(joined, tf.string), text.shape)
