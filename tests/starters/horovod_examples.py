"""Uses Horovod's interfaces to Ray and Spark as its documentation shows them: `horovod_examples.py ray|spark`."""

import os
import sys


def train(learning_rate):
    import horovod.tensorflow.keras as hvd
    import keras
    import numpy as np

    hvd.init()
    keras.utils.set_random_seed(1 + hvd.rank())
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(learning_rate)), "mse")
    x = np.ones((8, 3), "float32") * (1 + hvd.rank())
    callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]
    model.fit(x, x.sum(axis=1), 4, callbacks=callbacks, verbose=0)
    return hvd.rank(), [round(float(value), 5) for value in model.get_weights()[0].ravel()]


class Trainable:
    def __init__(self, learning_rate, factor=1.0):
        self.learning_rate = learning_rate * factor
        self.trained = None

    def train(self):
        self.trained = train(self.learning_rate)
        return self.trained

    def rate(self):
        return self.learning_rate


def on_ray():
    import ray
    from horovod.ray import RayExecutor

    ray.init(num_cpus=2, include_dashboard=False)
    settings = RayExecutor.create_settings(timeout_s=100)
    executor = RayExecutor(settings, num_workers=2, use_gpu=False)
    executor.start(executable_cls=Trainable, executable_args=[0.02], executable_kwargs={"factor": 0.5})
    results = executor.execute(lambda worker: worker.train())
    assert executor.execute_single(lambda worker: worker.rate()) == 0.01
    assert ray.get(executor.run_remote(train, args=[0.02])) != results
    executor.shutdown()

    executor = RayExecutor(settings, num_hosts=1, num_workers_per_host=2)
    executor.start(extra_env_vars={"GIVEN": "yes"})
    assert executor.run(lambda: os.environ["GIVEN"]) == ["yes", "yes"]
    assert executor.run(train, args=[0.01]) == results
    executor.shutdown()
    ray.shutdown()
    return results


def on_spark():
    import horovod.spark
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.master("local-cluster[2,1,1024]").config("spark.ui.enabled", "false").getOrCreate()
    results = horovod.spark.run(train, args=(0.01,), num_proc=2, env={**os.environ, "GIVEN": "yes"}, verbose=2)
    spark.stop()
    return results


if __name__ == "__main__":
    results = {"ray": on_ray, "spark": on_spark}[sys.argv[1]]()
    assert [rank for rank, _ in results] == [0, 1]
    assert results[0][1] == results[1][1]
    print("trained", results[0][1])
