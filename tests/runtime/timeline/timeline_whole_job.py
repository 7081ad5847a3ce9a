"""Reduces an array, without TensorFlow, and ends without hvd.shutdown; SMDDP_TIMELINE names a file."""

import numpy as np

import smddp_tf as hvd
from tests.native_module import core

hvd.init()
core().allreduce([np.ones(1000, np.float32)], "float32", "seen", 1)
