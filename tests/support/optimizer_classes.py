"""Classes of optimizers that a user has written, one of them registered with Keras."""

from __future__ import annotations

import keras


@keras.saving.register_keras_serializable("smddp_tests")
class RegisteredSGD(keras.optimizers.SGD):
    pass


class UnregisteredSGD(keras.optimizers.SGD):
    pass
