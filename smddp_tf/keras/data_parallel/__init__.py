"""`keras.distribution.DataParallel` on the TensorFlow backend; `smddp_tf.keras.distribution` installs it."""
