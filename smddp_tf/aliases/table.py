"""The alias table: module names of Horovod and SMDDP, and the modules of this package that replace them.

An entry lists our modules; an attribute is looked up in them in that order. Names that are not listed do not exist.
"""

from __future__ import annotations

HOROVOD_VERSION = "0.28.1"  # the release whose API this is
SMDDP_VERSION = "1.4.1"  # the last release of SMDDP for TensorFlow

HOROVOD: dict[str, tuple[str, ...]] = {
    "horovod": (),
    "horovod._keras": ("smddp_tf.compat.horovod.keras_internals",),
    "horovod._keras.callbacks": ("smddp_tf.compat.horovod.keras_internals",),
    "horovod._keras.elastic": ("smddp_tf.compat.horovod.keras_internals",),
    "horovod.common": ("smddp_tf.basics",),
    "horovod.common.basics": ("smddp_tf.basics",),
    "horovod.common.elastic": ("smddp_tf.elastic",),
    "horovod.common.exceptions": ("smddp_tf.exceptions",),
    "horovod.common.process_sets": ("smddp_tf.process_sets",),
    "horovod.common.util": (
        "smddp_tf.compat.horovod.common_util",
        "smddp_tf.exceptions",
        "smddp_tf.compat.horovod.internals",
    ),
    "horovod.keras": ("smddp_tf.compat.horovod.keras", "smddp_tf.keras"),
    "horovod.keras.callbacks": ("smddp_tf.compat.horovod.keras.callbacks",),
    "horovod.keras.elastic": ("smddp_tf.keras.elastic",),
    "horovod.ray": ("smddp_tf.ray",),
    "horovod.ray.runner": ("smddp_tf.ray",),
    "horovod.run": ("smddp_tf.run",),
    "horovod.runner": ("smddp_tf.run",),
    "horovod.runner.common": (),
    "horovod.runner.common.util": (),
    "horovod.runner.common.util.env": ("smddp_tf.compat.horovod.runner_env",),
    "horovod.runner.launch": ("smddp_tf.compat.horovod.runner_launch",),
    "horovod.spark": ("smddp_tf.spark",),
    "horovod.spark.runner": ("smddp_tf.spark",),
    "horovod.tensorflow": ("smddp_tf",),
    "horovod.tensorflow.compression": ("smddp_tf.compression",),
    "horovod.tensorflow.elastic": ("smddp_tf.elastic",),
    "horovod.tensorflow.functions": ("smddp_tf.collectives.functions", "smddp_tf"),
    "horovod.tensorflow.gradient_aggregation": ("smddp_tf.compat.horovod.internals",),
    "horovod.tensorflow.gradient_aggregation_eager": ("smddp_tf.compat.horovod.internals",),
    "horovod.tensorflow.keras": ("smddp_tf.keras",),
    "horovod.tensorflow.keras.callbacks": ("smddp_tf.keras.callbacks",),
    "horovod.tensorflow.keras.elastic": ("smddp_tf.keras.elastic",),
    "horovod.tensorflow.mpi_ops": ("smddp_tf.mpi_ops", "smddp_tf.collectives.ops", "smddp_tf"),
    "horovod.tensorflow.sync_batch_norm": ("smddp_tf.keras.sync_batch_normalization",),
    "horovod.tensorflow.util": ("smddp_tf.compat.horovod.internals", "smddp_tf"),
}

# Modules of this package that lie in folders now, by the names that programs import.
MOVED: dict[str, tuple[str, ...]] = {
    "smddp_tf.batch_plan": ("smddp_tf.data.batch_plan",),
    "smddp_tf.checks": (),
    "smddp_tf.checks.doctor": ("smddp_tf.insight.doctor",),
    "smddp_tf.elastic.callbacks": ("smddp_tf.keras.elastic.callbacks",),
    "smddp_tf.functions": ("smddp_tf.collectives.functions",),
    "smddp_tf.objects": ("smddp_tf.collectives.objects",),
    "smddp_tf.ops": ("smddp_tf.collectives.ops",),
    "smddp_tf.reduce_op": ("smddp_tf.collectives.reduce_op",),
    "smddp_tf.scatter_ops": ("smddp_tf.collectives.scatter_ops",),
    "smddp_tf.tape": ("smddp_tf.gradients.tape",),
    "smddp_tf.tf1": (),
    "smddp_tf.tf1.optimizer": ("smddp_tf.compat.tf1.optimizer",),
    "smddp_tf.tf1.session_hooks": ("smddp_tf.compat.tf1.session_hooks",),
}

# Parts of Horovod that are not here, and what to use instead.
HOROVOD_ABSENT: dict[str, str] = {
    "horovod.data": "a tf.data pipeline prefetches by itself",
    "horovod.mxnet": "smddp_tf trains with TensorFlow and Keras only",
    "horovod.runner.util": "start threads with Python's threading and concurrent.futures instead",
    "horovod.spark.keras": "`horovod.spark.run` a function that reads Parquet, with `hvd.data.shard`",
    "horovod.tensorflow.data": "start tf.data's own servers (tf.data.experimental.service) instead",
    "horovod.torch": "PyTorch trains through torch.distributed, with `import smddp_tf.torch`",
}

SMDISTRIBUTED: dict[str, tuple[str, ...]] = {
    "herringcommon": ("smddp_tf.sdp.common",),
    "smddpcommon": ("smddp_tf.sdp.common",),
    "smdistributed": (),
    "smdistributed.dataparallel": ("smddp_tf.sdp.profiler",),
    "smdistributed.dataparallel.exceptions": ("smddp_tf.sdp.exceptions",),
    "smdistributed.dataparallel.tensorflow": ("smddp_tf.sdp",),
    "smdistributed.dataparallel.tensorflow.keras": ("smddp_tf.sdp.keras",),
    "smdistributed.dataparallel.tensorflow.keras.callbacks": ("smddp_tf.keras.callbacks",),
    "smdistributed.dataparallel.torch": (),
    "smdistributed.dataparallel.torch.torch_smddp": ("smddp_tf.torch",),
}

SMDISTRIBUTED_ABSENT: dict[str, str] = {
    "smdistributed.modelparallel": "smddp_tf is data-parallel; models larger than one device need another library",
}
