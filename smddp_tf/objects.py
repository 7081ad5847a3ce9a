"""The objects of `smddp_tf` by the module's name that programs import: see `smddp_tf.collectives.objects`."""

from smddp_tf.collectives.objects import *  # noqa: F403
