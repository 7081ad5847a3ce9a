"""A training job of SageMaker: where its data come from, and where checkpoints, the model and other output go."""

import argparse
import json
import os
from pathlib import Path

import keras
import numpy as np

import smddp_tf.keras as hvd

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--learning-rate", type=float, default=0.01)
parser.add_argument("--checkpoints", default="/opt/ml/checkpoints", help="CheckpointConfig.LocalPath")
options, _ = parser.parse_known_args()  # the SDK adds --model_dir

hvd.init()
data = np.load(Path(os.environ.get("SM_CHANNEL_TRAIN", "/opt/ml/input/data/train")) / "data.npz")
share = hvd.data.shard((data["x"], data["y"]), batch_size=32, shuffle=True)
model = keras.Sequential([keras.layers.Dense(16, "relu"), keras.layers.Dense(1)])
model.compile(hvd.DistributedOptimizer(keras.optimizers.Adam(options.learning_rate * hvd.size())), loss="mse")
callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback()]
if hvd.rank() == 0:  # /opt/ml/checkpoints goes to S3 while the job runs
    callbacks.append(keras.callbacks.ModelCheckpoint(f"{options.checkpoints}/epoch-{{epoch}}.keras"))
losses = model.fit(share, epochs=options.epochs, callbacks=callbacks, shuffle=False, verbose=0).history["loss"]
if hvd.rank() == 0:  # both go to S3 at the end, as model.tar.gz and output.tar.gz
    model.save(Path(os.environ.get("SM_MODEL_DIR", "/opt/ml/model")) / "model.keras")
    (Path(os.environ.get("SM_OUTPUT_DATA_DIR", "/opt/ml/output/data")) / "losses.json").write_text(json.dumps(losses))
print(f"rank {hvd.rank()} of {hvd.size()}: loss {losses[0]:.3f} -> {losses[-1]:.3f}")
