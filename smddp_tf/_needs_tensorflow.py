"""To be imported before anything that imports TensorFlow: where there is none, the error names the command."""

from smddp_tf import _tensorflow

_tensorflow.need_tensorflow()
