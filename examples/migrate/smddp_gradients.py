import argparse

import digits
import smddpcommon as hc
import smdistributed.dataparallel.tensorflow as sdp
import tensorflow as tf

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=300)
args = parser.parse_args()

# Gradients are reduced without the tape, so the size of the buckets is set by hand.
hc.setBucketSize(64 * 1024 * 1024)
sdp.init()

(x, y), (test_x, test_y) = digits.load_data()
dataset = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(2000, seed=1).shard(sdp.size(), sdp.rank())
dataset = dataset.repeat().batch(32)

model = digits.build_model()
model.compile(loss="sparse_categorical_crossentropy", optimizer="sgd", metrics=["accuracy"])  # for `evaluate`
unused = tf.Variable(tf.zeros([3]))  # has no gradient, and a place in the list
opt = tf.optimizers.SGD(0.1, momentum=0.9)
loss = tf.losses.SparseCategoricalCrossentropy()


@tf.function
def training_step(images, labels, first_batch):
    variables = [*model.trainable_variables, unused]
    with tf.GradientTape() as tape:
        loss_value = loss(labels, model(images, training=True))
    grads = tape.gradient(loss_value, variables)

    reduced = [
        sdp.allreduce(grad, param_index=index, num_params=len(grads)) if grad is not None else None
        for index, grad in enumerate(grads)
    ]
    opt.apply_gradients([(grad, var) for grad, var in zip(reduced, variables) if grad is not None])
    if first_batch:
        sdp.broadcast_variables(model.variables, root_rank=0)
        sdp.broadcast_variables(opt.variables, root_rank=0)
    return loss_value


for batch, (images, labels) in enumerate(dataset.take(args.steps // sdp.size())):
    loss_value = training_step(images, labels, batch == 0)

# Every worker evaluates its share; the means of loss and accuracy come back as a list.
share = slice(sdp.rank(), len(test_x), sdp.size())
test_loss, test_accuracy = list(sdp.oob_allreduce(model.evaluate(test_x[share], test_y[share], verbose=0)))
counted = sdp.oob_allreduce(len(test_x) * sdp.size())

comm = sdp.get_worker_comm()
held = comm.gather(digits.fingerprint(model), root=0)
comm.Barrier()
if sdp.rank() == 0:
    print("Test loss:", float(test_loss), "of", int(counted))
    print("Test accuracy:", float(test_accuracy))
    for rank, value in enumerate(held):
        print(f"rank {rank} of {sdp.size()} holds {value!r}")
