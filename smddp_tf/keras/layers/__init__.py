"""Layers whose variables are spread over the ranks."""

from __future__ import annotations

from smddp_tf.keras.layers.configs import FeatureConfig, TableConfig
from smddp_tf.keras.layers.distributed_embedding import DistributedEmbedding

__all__ = ["DistributedEmbedding", "FeatureConfig", "TableConfig"]
