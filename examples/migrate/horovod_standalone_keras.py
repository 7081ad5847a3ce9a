import argparse
import os
import tempfile

import digits
import horovod.keras as hvd
import keras

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=6)
args = parser.parse_args()

hvd.init()

# Horovod: all ranks use the folder that rank 0 has made; only rank 0 reads and writes there.
folder = tempfile.mkdtemp() if hvd.rank() == 0 else ""
checkpoint_format = os.path.join(folder, "checkpoint-{epoch}.keras")
verbose = 2 if hvd.rank() == 0 else 0

(x, y), (test_x, test_y) = digits.load_data()
x, y = x[hvd.rank() :: hvd.size()], y[hvd.rank() :: hvd.size()]


def train(epochs):
    # Horovod: broadcast resume_from_epoch from rank 0 (which will have checkpoints) to other ranks.
    resume_from_epoch = 0
    for try_epoch in range(epochs, 0, -1):
        if folder and os.path.exists(checkpoint_format.format(epoch=try_epoch)):
            resume_from_epoch = try_epoch
            break
    resume_from_epoch = int(hvd.broadcast(resume_from_epoch, 0, name="resume_from_epoch"))

    # Horovod: restore on the first worker using hvd.load_model, which wraps the saved optimizer.
    if resume_from_epoch > 0 and hvd.rank() == 0:
        model = hvd.load_model(checkpoint_format.format(epoch=resume_from_epoch), compression=hvd.Compression.fp16)
    else:
        model = digits.build_model()
        opt = keras.optimizers.SGD(learning_rate=0.05 * hvd.size(), momentum=0.9)
        opt = hvd.DistributedOptimizer(opt, compression=hvd.Compression.fp16)
        model.compile(loss="sparse_categorical_crossentropy", optimizer=opt, metrics=["accuracy"])

    callbacks = [
        # Horovod: broadcast initial variable states from rank 0 to all other processes.
        hvd.callbacks.BroadcastGlobalVariablesCallback(0),
        hvd.callbacks.MetricAverageCallback(),
        hvd.callbacks.LearningRateScheduleCallback(initial_lr=0.05 * hvd.size(), multiplier=1.0, end_epoch=4),
        hvd.callbacks.LearningRateScheduleCallback(initial_lr=0.05 * hvd.size(), multiplier=1e-1, start_epoch=4),
    ]
    if hvd.rank() == 0:
        callbacks.append(keras.callbacks.ModelCheckpoint(checkpoint_format))

    model.fit(
        x,
        y,
        batch_size=32,
        callbacks=callbacks,
        epochs=epochs,
        initial_epoch=resume_from_epoch,
        verbose=verbose,
    )
    return model, resume_from_epoch


train(args.epochs // 2)
model, resumed_from = train(args.epochs)

# Horovod: evaluate on every worker and average the results.
score = hvd.allreduce(model.evaluate(test_x, test_y, verbose=0), name="score")
if hvd.rank() == 0:
    print("resumed from epoch", resumed_from)
    print("Test accuracy:", float(score[1]))
print(f"rank {hvd.rank()} of {hvd.size()} holds {digits.fingerprint(model)!r}")
