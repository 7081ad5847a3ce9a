"""What collectives take and return, for annotations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Union

import numpy as np
import tensorflow as tf

# What `tf.convert_to_tensor` takes.
TensorLike = Union[tf.Tensor, tf.Variable, np.ndarray, np.generic, bool, int, float, complex, Sequence[Any]]
