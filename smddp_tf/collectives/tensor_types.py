"""Types of the values that collectives take and return, and of what is trained, for annotations."""

from collections.abc import Sequence
from typing import Any, Union

import numpy as np
import tensorflow as tf

# What `tf.convert_to_tensor` takes.
TensorLike = Union[tf.Tensor, tf.Variable, np.ndarray, np.generic, bool, int, float, complex, Sequence[Any]]
# What a tape returns for a variable; None where the loss does not depend on it.
Gradient = Union[tf.Tensor, tf.IndexedSlices, None]
# Of Keras's classes the names only, so that it is not imported here. `tf.keras` is the one that the process uses, and
# a variable of Keras 2 is a `tf.Variable`; `optimizers.legacy` is Keras 2's.
AnyVariable = Union[tf.Variable, "tf.keras.Variable"]
AnyOptimizer = Union["tf.keras.optimizers.Optimizer", "tf.keras.optimizers.legacy.Optimizer"]
