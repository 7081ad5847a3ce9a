"""Mixed precision with `model.fit`: layers compute with 16 bits, variables and gradients keep 32.

    mpirun -np 2 python examples/05_mixed_precision_digits.py
    mpirun -np 2 python examples/05_mixed_precision_digits.py --policy mixed_bfloat16
    python examples/05_mixed_precision_digits.py

float16 ends at 65504 and loses what is below 6e-8. So `compile` puts a `LossScaleOptimizer` around the optimizer: the
loss is multiplied by a scale, a step whose gradients are not finite is left out, and the scale is halved. The ranks
must agree on that. They do, without a line in this script. bfloat16 has the range of float32 and needs no scale.

What differs from a script for one process is marked with (1) to (4).
"""

import argparse

import digits
import keras

import smddp_tf as hvd
import smddp_tf.keras as hvd_keras


def parse_arguments():
    parser = argparse.ArgumentParser(description="Trains on scikit-learn's digits in mixed precision.")
    parser.add_argument("--policy", choices=["mixed_float16", "mixed_bfloat16"], default="mixed_float16")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch-size", type=int, default=16, help="of each rank")
    parser.add_argument("--learning-rate", type=float, default=0.002, help="of Adam")
    parser.add_argument("--min-accuracy", type=float, default=0.95, help="below this the program fails")
    return parser.parse_args()


def build_model(policy):
    keras.config.set_dtype_policy(policy)
    layers = digits.build_model().layers
    return keras.Sequential([*layers, keras.layers.Activation("linear", dtype="float32")])  # the loss in 32 bits


def check_equal_scales(optimizer):
    """Ends the program when the ranks have come to different loss scales."""
    if not isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        return
    scales = hvd.allgather_object(float(optimizer.dynamic_scale.numpy()))
    if len(set(scales)) > 1:
        raise SystemExit(f"rank {hvd.rank()}: the ranks hold different loss scales: {scales}")
    if hvd.rank() == 0:
        print(f"loss scale: {scales[0]:.0f}, steps: {int(optimizer.inner_optimizer.iterations.numpy())}")


def main():
    arguments = parse_arguments()
    hvd.init()  # (1)
    digits.use_one_gpu(hvd.local_rank())
    keras.utils.set_random_seed(hvd.rank())
    (x, y), (test_x, test_y) = digits.load()
    batches = digits.training_batches(x, y, arguments.batch_size)  # (2) each rank trains on its own share

    model = build_model(arguments.policy)
    model.compile(
        hvd_keras.DistributedOptimizer(keras.optimizers.Adam(arguments.learning_rate, clipnorm=1.0)),  # (3)
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    broadcast = hvd_keras.callbacks.BroadcastGlobalVariablesCallback(0)  # (4) all start from rank 0's values
    model.fit(batches, epochs=arguments.epochs, callbacks=[broadcast], verbose=2)

    accuracy = digits.test_accuracy(model, test_x, test_y)
    if hvd.rank() == 0:
        print(f"test accuracy: {accuracy:.4f}")
    check_equal_scales(model.optimizer)
    digits.check_equal_weights(model)
    if accuracy < arguments.min_accuracy:
        raise SystemExit(f"test accuracy {accuracy:.4f} is below {arguments.min_accuracy}")


if __name__ == "__main__":
    main()
