"""What the examples share: a rank's GPU, the data, a rank's share of it, the model, the check of the weights."""

import hashlib

import keras
import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import smddp_tf as hvd


def use_one_gpu(local_rank):
    """One GPU for each rank of a machine, before TensorFlow touches any. Without GPUs nothing happens."""
    gpus = tf.config.list_physical_devices("GPU")
    for gpu in gpus:
        tf.config.experimental.set_memory_growth(gpu, True)
    if gpus:
        tf.config.set_visible_devices(gpus[local_rank % len(gpus)], "GPU")


def load():
    """1,797 handwritten digits of 8 x 8 pixels, one fifth of them for the test: (x, y), (test x, test y).

    1,436 and 361: neither number divides by 3, so that three ranks show what to do then.
    """
    images, labels = load_digits(return_X_y=True)
    images = (images / 16).astype("float32").reshape(-1, 8, 8, 1)
    x, test_x, y, test_y = train_test_split(images, labels, test_size=361, random_state=1, stratify=labels)
    return (x, y), (test_x, test_y)


def training_batches(x, y, batch_size):
    """This rank's batches: the same number of them on every rank, however the images divide.

    All ranks draw the same permutation in every epoch and take every size-th image of it. What is left over when the
    images do not divide is left out, and is something else in the next epoch.
    """
    images = tf.data.Dataset.from_tensor_slices((x, y))
    share = hvd.data.shard(images, even="drop", shuffle=True, seed=7)
    return share.batch(batch_size).prefetch(tf.data.AUTOTUNE)


def my_share(x, y):
    """Every size-th image: together the ranks have all of them, but some may have one more than others."""
    return x[hvd.rank() :: hvd.size()], y[hvd.rank() :: hvd.size()]


def build_model():
    return keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            keras.layers.Conv2D(32, 3, padding="same", activation="relu"),
            keras.layers.MaxPooling2D(),
            keras.layers.Conv2D(64, 3, padding="same", activation="relu"),
            keras.layers.Flatten(),
            keras.layers.Dropout(0.25),
            keras.layers.Dense(10),
        ]
    )


def test_accuracy(model, test_x, test_y):
    """The part of all test images that is recognised. Sums counts, so uneven shares do no harm."""
    x, y = my_share(test_x, test_y)
    right = np.sum(model.predict(x, verbose=0).argmax(axis=1) == y)
    right, count = hvd.allreduce(tf.constant([right, len(y)], tf.int64), op=hvd.Sum, name="test accuracy").numpy()
    return right / count


def check_equal_weights(model):
    """Compares a hash of all weights over the ranks, but for parts of tables. Ends the program when they differ."""
    digest = hashlib.sha256()
    for weight in model.weights:
        if not hasattr(weight, "smddp_local"):
            digest.update(np.ascontiguousarray(weight.numpy()).tobytes())
    hashes = hvd.allgather_object(digest.hexdigest())
    if len(set(hashes)) > 1:
        raise SystemExit(f"rank {hvd.rank()}: the ranks hold different weights: {hashes}")
    if hvd.rank() == 0:
        print(f"equal weights on all {hvd.size()} rank(s): sha256 {hashes[0]}")
