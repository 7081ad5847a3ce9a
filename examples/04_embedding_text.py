"""Sparse gradients: an Embedding learns from Python's own language reference, which every Python installation holds.

    mpirun -np 2 python examples/04_embedding_text.py
    python examples/04_embedding_text.py

The model guesses a word from the two words before and the two after it. The gradient of an Embedding names only the
rows that the batch touched (`tf.IndexedSlices`); the ranks exchange these rows, or the whole table where that is less.
"""

import argparse
import collections
import pydoc_data.topics
import re

import digits
import keras
import numpy as np
import tensorflow as tf

import smddp_tf as hvd

VOCABULARY = 1000
NEIGHBOURS = (-2, -1, 1, 2)


def load_text():
    """Word numbers of the text, the most frequent word first; words outside the vocabulary are number 0."""
    text = " ".join(pydoc_data.topics.topics[topic] for topic in sorted(pydoc_data.topics.topics))
    words = re.findall(r"[a-z]+", text.lower())
    frequent = [word for word, _ in collections.Counter(words).most_common(VOCABULARY - 1)]
    number = {word: place + 1 for place, word in enumerate(frequent)}
    return np.array([number.get(word, 0) for word in words], np.int32)


def training_batches(words, batch_size):
    """This rank's share of (the neighbours, the word). Equally many batches on every rank."""
    places = np.arange(2, len(words) - 2)
    places = places[words[places] > 0]
    neighbours = np.stack([words[places + offset] for offset in NEIGHBOURS], axis=1)
    per_rank = len(places) // hvd.size()
    mine = slice(hvd.rank() * per_rank, (hvd.rank() + 1) * per_rank)
    share = tf.data.Dataset.from_tensor_slices((neighbours[mine], words[places][mine]))
    return share.shuffle(per_rank, seed=hvd.rank()).batch(batch_size, drop_remainder=True)


def build_model():
    return keras.Sequential(
        [
            keras.Input((len(NEIGHBOURS),), dtype="int32"),
            keras.layers.Embedding(VOCABULARY, 32),
            keras.layers.GlobalAveragePooling1D(),
            keras.layers.Dense(VOCABULARY),
        ]
    )


def make_train_step(model, optimizer, loss_of, sparse_as_dense):
    @tf.function
    def train_step(neighbours, word):
        with tf.GradientTape() as tape:
            loss = loss_of(word, model(neighbours, training=True))
        tape = hvd.DistributedGradientTape(tape, sparse_as_dense=sparse_as_dense)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return loss, gradients[0]

    return train_step


def describe(gradient, batch_size):
    """What the Embedding's gradient looks like after the ranks have exchanged it."""
    if isinstance(gradient, tf.IndexedSlices):
        rows, looked_up = gradient.indices.shape[0], batch_size * len(NEIGHBOURS) * hvd.size()
        print(f"Embedding gradient: IndexedSlices with {rows} rows, each word once, for {looked_up} words looked up")
    else:
        print(f"Embedding gradient: dense, {gradient.shape[0]} rows")


def main():
    parser = argparse.ArgumentParser(description="Learns word vectors from Python's language reference.")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--batch-size", type=int, default=64, help="of each rank")
    parser.add_argument("--dense", action="store_true", help="exchange the gradient as a whole table")
    arguments = parser.parse_args()

    hvd.init()
    digits.use_one_gpu(hvd.local_rank())
    keras.utils.set_random_seed(hvd.rank())
    batches = training_batches(load_text(), arguments.batch_size).repeat().take(arguments.steps)
    model = build_model()
    optimizer = keras.optimizers.Adam(0.01)
    optimizer.build(model.trainable_variables)
    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    train_step = make_train_step(model, optimizer, loss_of, arguments.dense)
    hvd.broadcast_variables([*model.variables, *optimizer.variables], root_rank=0)

    losses = []
    for step, (neighbours, word) in enumerate(batches):
        loss, gradient = train_step(neighbours, word)
        losses.append(float(loss))
        if step == 0 and hvd.rank() == 0:
            describe(gradient, arguments.batch_size)

    window = max(1, len(losses) // 10)
    ends = tf.constant([np.mean(losses[:window]), np.mean(losses[-window:])])
    first, last = hvd.allreduce(ends, name="losses").numpy()
    if hvd.rank() == 0:
        print(f"loss: {first:.3f} in the first {window} steps, {last:.3f} in the last")
    digits.check_equal_weights(model)
    if last > 0.9 * first:
        raise SystemExit("the model has not learned")


if __name__ == "__main__":
    main()
