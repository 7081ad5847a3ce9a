"""The launcher: `smddprun` on the command line, `smddp_tf.run.run(func)` in Python.

Nothing here imports TensorFlow: the launcher must be quick, and must not hold devices that the ranks need.
"""

from smddp_tf.exceptions import LaunchError
from smddp_tf.run.launch.function import run

__all__ = ["LaunchError", "run"]
