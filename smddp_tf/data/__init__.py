"""Data for many ranks: every rank its part, and the same number of steps for all."""

from smddp_tf.data.epochs import set_epoch
from smddp_tf.data.sharding import shard

__all__ = ["set_epoch", "shard"]


def __dir__() -> list[str]:
    return sorted(__all__)
