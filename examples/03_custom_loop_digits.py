"""A training loop of one's own: `tf.function`, `GradientTape`, handwritten digits.

    mpirun -np 2 python examples/03_custom_loop_digits.py
    python examples/03_custom_loop_digits.py

What differs from a script for one process is marked with (1) to (4).
"""

import argparse

import digits
import keras
import tensorflow as tf

import smddp_tf as hvd


def parse_arguments():
    parser = argparse.ArgumentParser(description="Trains on scikit-learn's digits with a loop of its own.")
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--batch-size", type=int, default=16, help="of each rank")
    parser.add_argument("--learning-rate", type=float, default=0.001, help="of Adam")
    parser.add_argument("--min-accuracy", type=float, default=0.97, help="below this the program fails")
    return parser.parse_args()


def make_train_step(model, optimizer, loss_of):
    @tf.function
    def train_step(x, y):
        with tf.GradientTape() as tape:
            loss = loss_of(y, model(x, training=True))
        tape = hvd.DistributedGradientTape(tape)  # (3) its gradients are means over all ranks
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return loss

    return train_step


def main():
    arguments = parse_arguments()
    hvd.init()  # (1)
    digits.use_one_gpu(hvd.local_rank())
    keras.utils.set_random_seed(hvd.rank())
    (x, y), (test_x, test_y) = digits.load()
    batches = digits.training_batches(x, y, arguments.batch_size)  # (2) each rank trains on its own share

    model = digits.build_model()
    optimizer = keras.optimizers.Adam(arguments.learning_rate)
    optimizer.build(model.trainable_variables)
    train_step = make_train_step(model, optimizer, keras.losses.SparseCategoricalCrossentropy(from_logits=True))

    hvd.broadcast_variables([*model.variables, *optimizer.variables], root_rank=0)  # (4) all start from rank 0's values
    for epoch in range(arguments.epochs):
        hvd.data.set_epoch(batches, epoch)  # shares out and orders the images anew
        losses = [train_step(batch_x, batch_y) for batch_x, batch_y in batches]
        mean = hvd.allreduce(tf.reduce_mean(tf.stack(losses)), name="loss of the epoch")
        if hvd.rank() == 0:
            print(f"epoch {epoch + 1:2}: loss {mean.numpy():.4f}")

    accuracy = digits.test_accuracy(model, test_x, test_y)
    if hvd.rank() == 0:
        print(f"test accuracy: {accuracy:.4f}")
    digits.check_equal_weights(model)
    if accuracy < arguments.min_accuracy:
        raise SystemExit(f"test accuracy {accuracy:.4f} is below {arguments.min_accuracy}")


if __name__ == "__main__":
    main()
