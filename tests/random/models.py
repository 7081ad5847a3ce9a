"""The model of a case: the same layers for one process and for several, with the same first weights on every rank."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf

import smddp_tf.keras as hvk
from tests.random.case import Case

WORDS, COLUMNS = 11, 4
LENGTH, FEATURES, SIDE = 4, 3, 2
CLASSES = 3
TABLES = {"words": (WORDS, LENGTH), "users": (7, 0)}  # rows of a table, ids of a sample (0: one, without a dimension)

_UNITS = {"binary_crossentropy": 2, "sparse_categorical_crossentropy": CLASSES, "categorical_crossentropy": CLASSES}
_ACTIVATIONS = {
    "binary_crossentropy": "sigmoid",
    "sparse_categorical_crossentropy": "softmax",
    "categorical_crossentropy": "softmax",
}


def output_names(case: Case) -> list[str]:
    return [f"head{i}" for i in range(case.outputs)]


@keras.saving.register_keras_serializable("tests.random")
class MeanPenalty(keras.layers.Layer):
    """Adds a loss that is a mean over rows."""

    def call(self, x: Any) -> Any:
        self.add_loss(0.1 * keras.ops.mean(keras.ops.square(x)))
        return x


@keras.saving.register_keras_serializable("tests.random")
class DenseEmbedding(keras.layers.Embedding):
    """Its gradient is dense: Keras squares repeated rows of `tf.IndexedSlices` one by one."""

    def call(self, inputs: Any) -> Any:
        return keras.ops.matmul(keras.ops.one_hot(inputs, self.input_dim, dtype=self.compute_dtype), self.embeddings)


@keras.saving.register_keras_serializable("tests.random")
def first_table(shape: Any, dtype: Any = None) -> Any:
    return tf.reshape(tf.cast(tf.cos(tf.range(np.prod(shape), dtype=tf.float64)), dtype), shape)


def build(case: Case, distributed: bool, apart: int = 0) -> keras.Model:
    """The model, not compiled.

    Args:
        case: what it consists of.
        distributed: with the layers that know other ranks.
        apart: another number gives other first weights.
    """
    keras.utils.set_random_seed(case.number * 1000 + case.seed % 1000)
    layers = _layers(case, distributed, apart)
    inputs = _inputs(case)
    if case.style == "sequential":
        chain = layers.values()
        model = keras.Sequential([*([] if case.lazy else [inputs["x"]]), *chain])
    elif case.style == "functional":
        arranged = inputs if _has_dictionary(case) else inputs["x"]
        model = keras.Model(arranged, _forward(case, layers, arranged))
    else:
        model = Subclassed(case, layers)
        if not case.lazy:
            model(_examples(inputs, _has_dictionary(case)))
    model.of_case = layers
    return model


def weights_of(model: keras.Model) -> dict[str, np.ndarray]:
    """By layer and position; whole tables on rank 0, on others none."""
    found = {}
    for name, layer in model.of_case.items():
        if isinstance(layer, hvk.layers.DistributedEmbedding):
            found.update({f"table {table}": values for table, values in layer.get_embedding_tables().items()})
        elif name.startswith("table_"):
            found[f"table {name[6:]}"] = np.asarray(layer.embeddings)
        else:
            found.update({f"{name}/{i}": np.asarray(weight) for i, weight in enumerate(layer.weights)})
    return found


class Subclassed(keras.Model):
    def __init__(self, case: Case, layers: dict[str, keras.layers.Layer]):
        super().__init__()
        self._case, self._parts = case, layers

    def call(self, inputs: Any, training: Any = None) -> Any:
        del training  # Keras hands it to the layers, and `fit` to a model whose `call` has it
        return _forward(self._case, self._parts, inputs)


def _has_dictionary(case: Case) -> bool:
    return case.side or case.front == "table"


def _inputs(case: Case) -> dict[str, Any]:
    if case.front == "table":
        made = {
            name: keras.Input((count,) if count else (), dtype="int32", name=name)
            for name, (_, count) in TABLES.items()
        }
    elif case.front == "embedding":
        made = {"x": keras.Input((LENGTH,), dtype="int32", name="x")}
    else:
        made = {"x": keras.Input((FEATURES,) if case.front == "dense" else (LENGTH, FEATURES), name="x")}
    if case.side:
        made["side"] = keras.Input((SIDE,), name="side")
    return made


def _examples(inputs: dict[str, Any], dictionary: bool) -> Any:
    made = {name: np.zeros((2, *each.shape[1:]), each.dtype) for name, each in inputs.items()}
    return made if dictionary else made["x"]


def _layers(case: Case, distributed: bool, apart: int) -> dict[str, keras.layers.Layer]:
    """In the order in which a sample passes them."""
    count = iter(range(100))

    def random(scale: float = 0.5) -> Any:
        return keras.initializers.RandomNormal(stddev=scale, seed=case.number + 100 * next(count) + 7919 * apart)

    def named(name: str, kind: Any, *arguments: Any, **options: Any) -> None:
        made[name] = kind(*arguments, name=name, **options)

    made: dict[str, keras.layers.Layer] = {}
    _add_front(case, distributed, named, random)
    if case.norm == "layernorm":
        named("norm", keras.layers.LayerNormalization, epsilon=0.01)
    regularizer = "l2" if case.penalty == "l2" else None
    activity = keras.regularizers.L2(0.1) if case.penalty == "activity" else None
    bare = case.norm in ("syncbn", "bn")  # a bias before it has no gradient but rounding
    named(
        "hidden",
        keras.layers.Dense,
        5,
        activation=None if bare else "tanh",
        use_bias=not bare,
        kernel_initializer=random(),
        bias_initializer=random(),
        kernel_regularizer=regularizer,
        activity_regularizer=activity,
        dtype="float32" if case.floats == "mixed" else None,
    )
    if bare:
        kind = hvk.SyncBatchNormalization if distributed and case.norm == "syncbn" else keras.layers.BatchNormalization
        named("statistics", kind, momentum=0.8, epsilon=0.1)
    if case.penalty == "add_loss":
        named("penalty", MeanPenalty)
    if case.dropout:
        named("dropout", keras.layers.Dropout, 0.0)
    for i, name in enumerate(output_names(case)):
        loss = case.loss_of(i)
        named(
            name,
            keras.layers.Dense,
            _UNITS.get(loss, 2),
            activation=_ACTIVATIONS.get(loss),
            kernel_initializer=random(),
            bias_initializer=random(),
        )
    return made


def _add_front(case: Case, distributed: bool, named: Any, random: Any) -> None:
    """The layers that turn the input `x` into features."""
    sequences = case.masked == "loss"
    if case.front == "table":
        _add_tables(case, distributed, named)
    elif case.front == "embedding":
        # keras-distribution.md: "Gradients of embeddings are dense with `partition_state=`"; keras.md, "Sparse
        # gradients".
        dense = not distributed and (not case.distribution or case.shard)
        kind = DenseEmbedding if dense else keras.layers.Embedding
        named("embedding", kind, WORDS, COLUMNS, mask_zero=bool(case.masked), embeddings_initializer=random())
        if case.masked:
            named("recurrent", keras.layers.LSTM, 3, return_sequences=sequences, **_recurrent(random))
        else:
            named("flat", keras.layers.GlobalAveragePooling1D if case.number % 2 else keras.layers.Flatten)
    elif case.front == "conv":
        named(
            "conv", keras.layers.Conv1D, 4, 2, activation="tanh", kernel_initializer=random(), bias_initializer=random()
        )
        named("flat", keras.layers.GlobalAveragePooling1D if case.number % 2 else keras.layers.Flatten)
    elif case.front in ("lstm", "gru"):
        if case.masked:
            named("masking", keras.layers.Masking)
        kind = keras.layers.LSTM if case.front == "lstm" else keras.layers.GRU
        named("recurrent", kind, 3, return_sequences=sequences, **_recurrent(random))


def _add_tables(case: Case, distributed: bool, named: Any) -> None:
    if not distributed:
        for table, (rows, _) in TABLES.items():
            named(f"table_{table}", DenseEmbedding, rows, COLUMNS, embeddings_initializer=first_table)
        return
    features = {
        feature: hvk.layers.FeatureConfig(
            feature,
            hvk.layers.TableConfig(
                feature, rows, COLUMNS, initializer=first_table, combiner="mean", placement=case.placement
            ),
            (None, count)[: 1 + bool(count)],
            (None, COLUMNS),
        )
        for feature, (rows, count) in TABLES.items()
    }
    named("tables", hvk.layers.DistributedEmbedding, features)


def _recurrent(random: Any) -> dict[str, Any]:
    # Orthogonal matrices are not those of float32 in float64.
    return {"kernel_initializer": random(), "recurrent_initializer": random(), "bias_initializer": random()}


def _forward(case: Case, layers: dict[str, Any], inputs: Any) -> Any:
    """What a functional and a subclassed model compute."""
    features = _features(case, layers, inputs)
    if case.side:
        features = keras.ops.concatenate([features, inputs["side"]], axis=-1)
    for name in ("norm", "hidden", "statistics"):
        features = layers[name](features) if name in layers else features
    if "statistics" in layers:
        features = keras.ops.tanh(features)
    for name in ("penalty", "dropout"):
        features = layers[name](features) if name in layers else features
    outputs = {name: layers[name](features) for name in output_names(case)}
    if case.outputs == 1:
        return outputs["head0"]
    return outputs if case.nested == "dict" else list(outputs.values())


def _features(case: Case, layers: dict[str, Any], inputs: Any) -> Any:
    if case.front == "table":
        ids = {name: inputs[name] for name in TABLES}
        if "tables" in layers:
            rows = layers["tables"](ids)
        else:
            rows = {name: layers[f"table_{name}"](ids[name]) for name in TABLES}
            rows["words"] = keras.ops.mean(rows["words"], axis=1)
        return keras.ops.concatenate([rows[name] for name in TABLES], axis=-1)
    x = inputs["x"] if _has_dictionary(case) else inputs
    for name in ("embedding", "conv", "masking", "recurrent", "flat"):
        x = layers[name](x) if name in layers else x
    return x
