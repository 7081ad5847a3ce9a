import argparse

import digits
import horovod.tensorflow.keras as hvd
import tensorflow as tf
from horovod.common.exceptions import HorovodInternalError

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=6)
args = parser.parse_args()

hvd.init()

(x, y), (test_x, test_y) = digits.load_data()
dataset = tf.data.Dataset.from_tensor_slices((x, y)).repeat().shuffle(2000).batch(32)

lr = 0.05
model = digits.build_model()
opt = tf.optimizers.SGD(lr * hvd.size(), momentum=0.9)
opt = hvd.DistributedOptimizer(opt)
model.compile(loss="sparse_categorical_crossentropy", optimizer=opt, metrics=["accuracy"])
model.fit(dataset, steps_per_epoch=1, epochs=1, verbose=0)  # builds the optimizer


def on_state_reset():
    # Horovod: the number of workers may be another one now.
    model.optimizer.learning_rate.assign(lr * hvd.size())


state = hvd.elastic.KerasState(model, batch=0, epoch=0)
state.register_reset_callbacks([on_state_reset])


class LoseAWorker(tf.keras.callbacks.Callback):
    """What the loss of a worker looks like to the others, once."""

    lost = False

    def on_train_batch_end(self, batch, logs=None):
        if state.epoch == 2 and batch == 5 and not LoseAWorker.lost:
            LoseAWorker.lost = True
            raise HorovodInternalError("a worker has gone")


callbacks = [
    hvd.callbacks.MetricAverageCallback(),
    LoseAWorker(),
    hvd.elastic.UpdateEpochStateCallback(state),
    hvd.elastic.UpdateBatchStateCallback(state),
    hvd.elastic.CommitStateCallback(state, batches_per_commit=10),
]


@hvd.elastic.run
def train(state):
    model.fit(
        dataset,
        steps_per_epoch=48 // hvd.size(),
        callbacks=callbacks,
        epochs=args.epochs - state.epoch,
        verbose=2 if hvd.rank() == 0 else 0,
    )


train(state)

score = model.evaluate(test_x, test_y, verbose=0)
if hvd.rank() == 0:
    print(f"lost a worker: {LoseAWorker.lost}, trained {state.epoch} epochs")
    print("Test accuracy:", score[1])
print(f"rank {hvd.rank()} of {hvd.size()} holds {digits.fingerprint(model)!r}")
