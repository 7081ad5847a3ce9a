"""The data and the model of these scripts: 1,797 handwritten digits of 8 x 8 pixels."""

import keras
from sklearn.datasets import load_digits


def load_data():
    """(images, labels) to train with, and to test with."""
    images, labels = load_digits(return_X_y=True)
    images = (images / 16.0).astype("float32").reshape(-1, 8, 8, 1)
    return (images[:1500], labels[:1500]), (images[1500:], labels[1500:])


def build_model():
    return keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            keras.layers.Flatten(),
            keras.layers.Dense(64, activation="relu"),
            keras.layers.Dense(10, activation="softmax"),
        ]
    )


def fingerprint(model):
    """A number that two models share only if they have the same weights."""
    return float(sum((weight.astype("float64") ** 2).sum() for weight in model.get_weights()))
