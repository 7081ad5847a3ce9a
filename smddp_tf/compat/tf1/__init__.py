"""TensorFlow 1 style training: graphs, sessions, `tf.compat.v1` optimizers and hooks."""
