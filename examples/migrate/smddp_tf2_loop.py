import argparse

import digits

# Import SMDataParallel TensorFlow2 Modules
import smdistributed.dataparallel.tensorflow as dist
import tensorflow as tf

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=400)
args = parser.parse_args()

# SMDataParallel: Initialize
dist.init()

gpus = tf.config.experimental.list_physical_devices("GPU")
for gpu in gpus:
    tf.config.experimental.set_memory_growth(gpu, True)
if gpus:
    # SMDataParallel: Pin GPUs to a single SMDataParallel process [use SMDataParallel local_rank() API]
    tf.config.experimental.set_visible_devices(gpus[dist.local_rank()], "GPU")

(x, y), (test_x, test_y) = digits.load_data()
dataset = tf.data.Dataset.from_tensor_slices((x, y)).shard(dist.size(), dist.rank())
dataset = dataset.repeat().shuffle(1000).batch(32)

model = digits.build_model()
loss = tf.losses.SparseCategoricalCrossentropy()

# SMDataParallel: dist.size(). LR for a single GPU is 0.002
opt = tf.optimizers.Adam(0.002 * dist.size())


@tf.function
def training_step(images, labels, first_batch):
    with tf.GradientTape() as tape:
        probs = model(images, training=True)
        loss_value = loss(labels, probs)

    # SMDataParallel: Wrap tf.GradientTape with SMDataParallel's DistributedGradientTape
    tape = dist.DistributedGradientTape(tape)

    grads = tape.gradient(loss_value, model.trainable_variables)
    opt.apply_gradients(zip(grads, model.trainable_variables))

    if first_batch:
        # SMDataParallel: Broadcast model and optimizer variables
        dist.broadcast_variables(model.variables, root_rank=0)
        dist.broadcast_variables(opt.variables(), root_rank=0)

    # SMDataParallel: all_reduce call
    loss_value = dist.oob_allreduce(loss_value)
    return loss_value


for batch, (images, labels) in enumerate(dataset.take(args.steps // dist.size())):
    loss_value = training_step(images, labels, batch == 0)

    if batch % 50 == 0 and dist.rank() == 0:
        print(f"Step #{batch}\tLoss: {loss_value:.6f}")

accuracy = float(tf.reduce_mean(tf.cast(tf.argmax(model(test_x), axis=1) == test_y, tf.float32)))

# SMDataParallel: Print (and save checkpoints) only from the leader node.
if dist.rank() == 0:
    print("Test accuracy:", accuracy)
print(f"rank {dist.rank()} of {dist.size()} holds {digits.fingerprint(model)!r}")
