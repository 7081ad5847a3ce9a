import argparse
import os
import tempfile

import digits
import horovod.tensorflow.keras as hvd
import tensorflow as tf

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=8)
args = parser.parse_args()

# Horovod: initialize Horovod.
hvd.init()

# Horovod: pin GPU to be used to process local rank (one GPU per process)
gpus = tf.config.experimental.list_physical_devices("GPU")
for gpu in gpus:
    tf.config.experimental.set_memory_growth(gpu, True)
if gpus:
    tf.config.experimental.set_visible_devices(gpus[hvd.local_rank()], "GPU")

(x, y), (test_x, test_y) = digits.load_data()
dataset = tf.data.Dataset.from_tensor_slices((x, y)).repeat().shuffle(2000).batch(32)

model = digits.build_model()

# Horovod: adjust learning rate based on number of GPUs.
scaled_lr = 0.003 * hvd.size()
opt = tf.optimizers.Adam(scaled_lr)

# Horovod: add Horovod DistributedOptimizer.
opt = hvd.DistributedOptimizer(opt, backward_passes_per_step=1, average_aggregated_gradients=True)

# Horovod: Specify `experimental_run_tf_function=False` to ensure TensorFlow
# uses hvd.DistributedOptimizer() to compute gradients.
model.compile(
    loss=tf.losses.SparseCategoricalCrossentropy(),
    optimizer=opt,
    metrics=["accuracy"],
    experimental_run_tf_function=False,
)

callbacks = [
    # Horovod: broadcast initial variable states from rank 0 to all other processes.
    hvd.callbacks.BroadcastGlobalVariablesCallback(0),
    # Horovod: average metrics among workers at the end of every epoch. Must be in the list
    # before the ReduceLROnPlateau, TensorBoard or other metrics-based callbacks.
    hvd.callbacks.MetricAverageCallback(),
    # Horovod: start with a small learning rate, and reach the scaled one after three epochs.
    hvd.callbacks.LearningRateWarmupCallback(initial_lr=scaled_lr, warmup_epochs=3, verbose=1),
]

# Horovod: save checkpoints only on worker 0 to prevent other workers from corrupting them.
checkpoints = tempfile.mkdtemp()
if hvd.rank() == 0:
    callbacks.append(tf.keras.callbacks.ModelCheckpoint(os.path.join(checkpoints, "checkpoint-{epoch}.keras")))

# Horovod: write logs on worker 0.
verbose = 2 if hvd.rank() == 0 else 0
steps = 96 // hvd.size()
model.fit(dataset, steps_per_epoch=steps, callbacks=callbacks, epochs=args.epochs, verbose=verbose)

score = model.evaluate(test_x, test_y, verbose=0)
if hvd.rank() == 0:
    print("checkpoints:", len(os.listdir(checkpoints)))
    print("Test accuracy:", score[1])
print(f"rank {hvd.rank()} of {hvd.size()} holds {digits.fingerprint(model)!r}")
