"""The configuration of a `DistributedEmbedding`: tables, and the features that are looked up in them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from smddp_tf.keras._backend import keras
from smddp_tf.keras.layers.placement import PLACEMENTS

_COMBINERS = ("mean", "sum", "sqrtn")
_SAVED = ("name", "vocabulary_size", "embedding_dim", "combiner", "placement")


@keras.saving.register_keras_serializable(package="smddp_tf")
@dataclasses.dataclass
class TableConfig:
    """One embedding table.

    Attributes:
        name: String, unique among the tables of a layer.
        vocabulary_size: Integer, the number of rows; ids are from 0 to `vocabulary_size - 1`.
        embedding_dim: Integer, the number of columns.
        initializer: As for `keras.layers.Embedding`. Defaults to `VarianceScaling(mode="fan_out")`.
        optimizer: Without effect: the model's optimizer trains the tables too.
        combiner: `"mean"`, `"sum"` or `"sqrtn"`: what becomes of several ids of one sample. Defaults to `"mean"`.
        placement: Which ranks hold the table: `"table_wise"`, one rank; `"row_wise"`, each rank some of its rows;
            `"column_wise"`, each some of its columns; `"default_device"`, each rank all of it; `"auto"` chooses by
            size, and `"sparsecore"` is the same. Defaults to `"auto"`.
        max_ids_per_partition: Without effect.
        max_unique_ids_per_partition: Without effect.
    """

    name: str
    vocabulary_size: int
    embedding_dim: int
    initializer: Any = dataclasses.field(default_factory=lambda: keras.initializers.VarianceScaling(mode="fan_out"))
    optimizer: Any = None
    combiner: str = "mean"
    placement: str = "auto"
    max_ids_per_partition: int = 256
    max_unique_ids_per_partition: int = 256

    def get_config(self) -> dict[str, Any]:
        """For a saved file."""
        initializer = keras.saving.serialize_keras_object(keras.initializers.get(self.initializer))
        return {**{name: getattr(self, name) for name in _SAVED}, "initializer": initializer}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> TableConfig:
        """Returns the object that `get_config` has described."""
        return cls(**{**config, "initializer": keras.saving.deserialize_keras_object(config["initializer"])})

    def check(self) -> None:
        """Raises a ValueError where a field has no meaning."""
        known = self.combiner in _COMBINERS and self.placement in PLACEMENTS
        if not known or self.vocabulary_size < 1 or self.embedding_dim < 1:
            raise ValueError(
                f"Table {self.name!r}: `combiner` must be one of {_COMBINERS}, `placement` one of {PLACEMENTS}, and "
                f"`vocabulary_size` and `embedding_dim` positive. Received: {self.combiner!r}, {self.placement!r}, "
                f"{self.vocabulary_size} and {self.embedding_dim}."
            )


@keras.saving.register_keras_serializable(package="smddp_tf")
@dataclasses.dataclass
class FeatureConfig:
    """One feature, that is, ids that are looked up in one table; several features may share a table.

    Attributes:
        name: String, for messages.
        table: `TableConfig`, the same object for features that share a table.
        input_shape: Shape of the ids, `(batch,)` or `(batch, ids of a sample)`.
        output_shape: `(batch, embedding_dim)`.
    """

    name: str
    table: Any
    input_shape: Sequence[Any]
    output_shape: Sequence[Any]

    def get_config(self) -> dict[str, Any]:
        """For a saved file."""
        table = keras.saving.serialize_keras_object(self.table)
        shapes = {"input_shape": list(self.input_shape), "output_shape": list(self.output_shape)}
        return {"name": self.name, "table": table, **shapes}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> FeatureConfig:
        """Returns the object that `get_config` has described."""
        return cls(**{**config, "table": keras.saving.deserialize_keras_object(config["table"])})


def feature_of(config: FeatureConfig, tables: dict[str, TableConfig]) -> FeatureConfig:
    """Returns our copy of one of our configurations, or of keras_rs's, whose attributes have the same names.

    Args:
        config: a `FeatureConfig`.
        tables: by name; a table that is not there yet is added.

    Raises:
        ValueError: an attribute is missing or has no meaning, or another table has the same name.
    """
    try:
        fields = {field.name: getattr(config.table, field.name) for field in dataclasses.fields(TableConfig)}
        name, shapes = config.name, (tuple(config.input_shape), tuple(config.output_shape))
    except AttributeError as error:
        raise ValueError(
            "`feature_configs` must hold FeatureConfig objects whose `table` is a TableConfig, of "
            f"smddp_tf.keras.layers or of keras_rs.layers. Received: {config!r}. {error}."
        ) from None
    table = TableConfig(**fields)
    table.check()
    known = tables.setdefault(table.name, table)
    if any(getattr(known, field) != fields[field] for field in _SAVED):
        raise ValueError(f"Tables of one layer need different names. Received: {known} and {table}.")
    return FeatureConfig(name, known, *shapes)
