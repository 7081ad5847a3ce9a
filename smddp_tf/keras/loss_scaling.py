"""Reduces before the finite check when Keras puts a LossScaleOptimizer around a wrapped optimizer.

`model.compile` does so under the `mixed_float16` policy. A `LossScaleOptimizer` first asks whether the gradients are
finite and calls the inner optimizer only if they are. Asked about local gradients, ranks would answer differently,
take different steps and wait for each other for ever. Keras offers no hook between the two, so `apply` of its class is
replaced, once, by one that reduces first where the inner optimizer is ours and is the old one everywhere else.
"""

from __future__ import annotations

import functools

from smddp_tf.keras._backend import keras
from smddp_tf.keras.reducing import is_wrapped, reduced_gradients, reduction_of

_MARK = "_smddp_reduces_first"


def reduce_before_finite_check():
    """Installs the replacement; does nothing the second time."""
    loss_scale_class = keras.optimizers.LossScaleOptimizer
    plain_apply = loss_scale_class.apply
    if getattr(plain_apply, _MARK, False):
        return

    @functools.wraps(plain_apply)
    def apply(self, grads, trainable_variables=None):
        inner = self.inner_optimizer
        if not is_wrapped(inner):
            return plain_apply(self, grads, trainable_variables)
        grads = reduced_gradients(inner, grads, trainable_variables)
        with reduction_of(inner).paused():
            return plain_apply(self, grads, trainable_variables)

    setattr(apply, _MARK, True)
    loss_scale_class.apply = apply
