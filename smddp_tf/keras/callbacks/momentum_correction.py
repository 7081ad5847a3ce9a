"""Keeps momentum buffers right when the learning rate changes (Goyal et al. 2017, Remark 2).

Momentum SGD can be written with the learning rate outside of the buffer or inside of it:

    u <- m * u + g,        w <- w - lr * u         (9)
    v <- m * v + lr * g,   w <- w - v              (10)

They agree, with v = lr * u, as long as lr is constant. Keras stores v (with the sign turned: `velocity`). Right after
lr goes from `old` to `new`, v still holds steps taken at `old`; to go on like (9), where a new rate takes effect at
once on all that was gathered, v must be multiplied by new / old. That is the paper's
v_{t+1} = m * (lr_{t+1} / lr_t) * v_t + lr_{t+1} * g, and it is what `scale_momentum` does, once for each change.
Scaling the buffer, unlike lending `m` another value for one batch, is exact for Nesterov momentum too, and needs no new
trace of the training step (in Keras 3 `momentum` is a number frozen into it).

Accurate, Large Minibatch SGD: Training ImageNet in 1 Hour, https://arxiv.org/abs/1706.02677
"""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from smddp_tf.collectives.tensor_types import AnyOptimizer
from smddp_tf.keras._backend import LEGACY, keras
from smddp_tf.keras.roles.optimizers import innermost


def scale_momentum(optimizer: AnyOptimizer, old_rate: float, new_rate: float) -> None:
    """Multiplies the buffers of form (10) by `new_rate / old_rate`; there may be none, then it does nothing."""
    if old_rate in (0.0, new_rate):
        return
    buffers = _buffers_holding_rate(optimizer)
    if buffers:
        _multiply(buffers, tf.constant(new_rate / old_rate, tf.float64))


def _buffers_holding_rate(optimizer: AnyOptimizer) -> list[tf.Variable]:
    """The buffers whose entries are multiples of the learning rate: SGD's and RMSprop's.

    Adam, Lion, Muon and others keep averages of gradients, as in (9), and need no correction.
    """
    optimizer = innermost(optimizer)
    if LEGACY and isinstance(optimizer, (keras.optimizers.legacy.SGD, keras.optimizers.legacy.RMSprop)):
        return [slots["momentum"] for slots in optimizer._slots.values() if "momentum" in slots]
    if isinstance(optimizer, keras.optimizers.SGD):
        buffers = getattr(optimizer, "momentums", [])
    elif isinstance(optimizer, keras.optimizers.RMSprop):
        buffers = getattr(optimizer, "_momentums", [])
    else:
        buffers = []
    return [buffer if LEGACY else getattr(buffer, "value", buffer) for buffer in buffers if buffer is not None]


@tf.function(autograph=False)
def _multiply(variables: Sequence[tf.Variable], ratio: tf.Tensor) -> None:
    for variable in variables:
        variable.assign(variable * tf.cast(ratio, variable.dtype))
