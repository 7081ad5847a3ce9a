"""To be imported before anything that imports TensorFlow: where there is none, the error names the command."""

from smddp_tf._native import tensorflow_import

tensorflow_import.need_tensorflow()
