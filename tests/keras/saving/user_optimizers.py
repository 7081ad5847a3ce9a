"""Optimizer classes of a user, for the scripts that save and those that load."""

import keras


@keras.saving.register_keras_serializable("smddp_tests")
class RegisteredSGD(keras.optimizers.SGD):
    pass


class UnregisteredSGD(keras.optimizers.SGD):
    pass
