"""Keras `model.fit` on several ranks: handwritten digits.

    mpirun -np 2 python examples/02_keras_digits.py
    python examples/02_keras_digits.py
    mpirun -np 2 python examples/02_keras_digits.py --jit-compile

What differs from a script for one process is marked with (1) to (6).
"""

import argparse
import pathlib
import time

import digits
import keras
from rich.console import Console
from rich.table import Table

import smddp_tf as hvd
import smddp_tf.keras as hvd_keras

WARMUP_EPOCHS = 3


class Progress(keras.callbacks.Callback):
    """Keeps one row per epoch. Images per second count the training steps of all ranks, without the validation."""

    def __init__(self):
        super().__init__()
        self.rows = []

    def on_epoch_begin(self, epoch, logs=None):
        self._begin = time.perf_counter()
        self._batches = 0

    def on_train_batch_end(self, batch, logs=None):
        self._batches = batch + 1
        self._end = time.perf_counter()

    def on_epoch_end(self, epoch, logs=None):
        row = {"epoch": epoch + 1, "seconds": self._end - self._begin, "batches": self._batches}
        self.rows.append(row | logs | {"learning_rate": float(self.model.optimizer.learning_rate)})


def print_table(rows, images_per_epoch):
    table = Table(title=f"handwritten digits on {hvd.size()} rank(s)")
    for heading in ("epoch", "loss", "accuracy", "test loss", "test accuracy", "learning rate", "images/s"):
        table.add_column(heading, justify="right")
    for row in rows:
        measures = [f"{row[name]:.4f}" for name in ("loss", "accuracy", "val_loss", "val_accuracy")]
        speed = images_per_epoch / row["seconds"]
        table.add_row(str(row["epoch"]), *measures, f"{row['learning_rate']:.4f}", f"{speed:,.0f}")
    Console(width=100).print(table)


def parse_arguments():
    parser = argparse.ArgumentParser(description="Trains a small convolutional network on scikit-learn's digits.")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=16, help="of each rank")
    parser.add_argument("--learning-rate", type=float, default=0.03, help="of one rank; scaled by their number")
    parser.add_argument("--checkpoint", default="build/digits.keras", help="file that rank 0 writes")
    parser.add_argument("--jit-compile", action="store_true", help="XLA compiles the training step, reduction included")
    parser.add_argument("--min-accuracy", type=float, default=0.97, help="below this the program fails")
    return parser.parse_args()


def main():
    arguments = parse_arguments()
    hvd.init()  # (1)
    digits.use_one_gpu(hvd.local_rank())
    keras.utils.set_random_seed(hvd.rank())  # every rank starts elsewhere; the broadcast (4) makes them equal
    (x, y), (test_x, test_y) = digits.load()
    batches = digits.training_batches(x, y, arguments.batch_size)  # (2) each rank trains on its own share

    model = digits.build_model()
    learning_rate = arguments.learning_rate * hvd.size()
    optimizer = keras.optimizers.SGD(learning_rate, momentum=0.9)
    model.compile(
        hvd_keras.DistributedOptimizer(optimizer),  # (3)
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
        jit_compile=arguments.jit_compile,
    )

    progress = Progress()
    callbacks = [
        hvd_keras.callbacks.BroadcastGlobalVariablesCallback(0),  # (4)
        hvd_keras.callbacks.MetricAverageCallback(),  # (5)
        hvd_keras.callbacks.LearningRateWarmupCallback(initial_lr=learning_rate, warmup_epochs=WARMUP_EPOCHS),
        hvd_keras.callbacks.LearningRateScheduleCallback(
            initial_lr=learning_rate, multiplier=lambda epoch: 0.1, start_epoch=max(WARMUP_EPOCHS, arguments.epochs - 5)
        ),
    ]
    if hvd.rank() == 0:  # (6) one rank writes
        pathlib.Path(arguments.checkpoint).parent.mkdir(parents=True, exist_ok=True)
        callbacks += [progress, keras.callbacks.ModelCheckpoint(arguments.checkpoint)]

    model.fit(
        batches,
        epochs=arguments.epochs,
        validation_data=digits.my_share(test_x, test_y),
        callbacks=callbacks,
        verbose=0,
    )
    report(model, progress, len(x) - len(x) % hvd.size(), digits.test_accuracy(model, test_x, test_y), arguments)


def report(model, progress, images_per_epoch, accuracy, arguments):
    if hvd.rank() == 0:
        print_table(progress.rows, images_per_epoch)
        after_the_first = progress.rows[1:] or progress.rows  # the first epoch also compiles the graph
        seconds = sum(row["seconds"] for row in after_the_first)
        print(f"images/s: {images_per_epoch * len(after_the_first) / seconds:,.0f}")
        print(f"checkpoint: {arguments.checkpoint}")
        print(f"test accuracy: {accuracy:.4f}")
    digits.check_equal_weights(model)
    if accuracy < arguments.min_accuracy:
        raise SystemExit(f"test accuracy {accuracy:.4f} is below {arguments.min_accuracy}")


if __name__ == "__main__":
    main()
