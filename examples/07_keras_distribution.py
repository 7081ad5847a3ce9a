"""`keras.distribution` on TensorFlow: handwritten digits, with nothing but Keras's own API.

    smddprun -np 2 python examples/07_keras_distribution.py
    python examples/07_keras_distribution.py

The batch size is that of all ranks, and what is printed is that of one process on the whole data.
"""

import argparse
import tempfile

import digits
import keras

import smddp_tf.keras.distribution  # (1) gives Keras's TensorFlow backend what it lacks


def main():
    parser = argparse.ArgumentParser(description="Trains a small convolutional network on scikit-learn's digits.")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--min-accuracy", type=float, default=0.95, help="below this the program fails")
    arguments = parser.parse_args()

    keras.utils.set_random_seed(1)
    keras.distribution.initialize()  # (2) who am I, and how many are we?
    keras.distribution.set_distribution(keras.distribution.DataParallel())  # (3)

    (x, y), test = digits.load()  # the whole data, on every rank
    model = digits.build_model()
    model.compile(
        keras.optimizers.SGD(0.05, momentum=0.9),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = keras.callbacks.ModelCheckpoint(f"{folder}/digits.keras", save_best_only=True)
        model.fit(x, y, batch_size=32, epochs=arguments.epochs, validation_data=test, callbacks=[checkpoint], verbose=0)

    results = model.evaluate(*test, return_dict=True, verbose=0)
    if smddp_tf.rank() == 0:
        print(f"test accuracy: {results['accuracy']:.4f}, test loss: {results['loss']:.4f}")
    digits.check_equal_weights(model)
    if results["accuracy"] < arguments.min_accuracy:
        raise SystemExit(f"test accuracy {results['accuracy']:.4f} is below {arguments.min_accuracy}")


if __name__ == "__main__":
    main()
