"""Reduces before the finite check when Keras puts a LossScaleOptimizer around a wrapped optimizer.

`model.compile` does so under the `mixed_float16` policy. A `LossScaleOptimizer` first asks whether the gradients are
finite and calls the inner optimizer only if they are. Asked about local gradients, ranks would answer differently,
take different steps and wait for each other for ever. The outer optimizer is made after the inner one was wrapped, by
Keras, so there is no object of ours to put in its place: two methods of its class are replaced, once. They are the old
ones wherever the inner optimizer is not ours.
"""

from __future__ import annotations

import functools

import tensorflow as tf

from smddp_tf import ops
from smddp_tf.keras._backend import keras
from smddp_tf.keras.applying import apply_reduced
from smddp_tf.keras.reducing import reduction_of
from smddp_tf.keras.wrapping import is_wrapped
from smddp_tf.reduce_op import Min


@functools.cache
def reduce_before_finite_check():
    """Installs the replacements; does nothing the second time."""
    loss_scale_class = keras.optimizers.LossScaleOptimizer
    loss_scale_class.apply = _reducing(loss_scale_class.apply)
    loss_scale_class.check_finite = _agreeing(loss_scale_class.check_finite, loss_scale_class.apply)


def _reducing(plain_apply):
    """`apply` that reduces first. Where an outer optimizer has reduced, the reduction is paused: all goes through."""

    @functools.wraps(plain_apply)
    def apply(self, grads, trainable_variables=None):
        if not is_wrapped(self.inner_optimizer):
            return plain_apply(self, grads, trainable_variables)
        reduction = reduction_of(self.inner_optimizer)
        return apply_reduced(self, reduction, functools.partial(plain_apply, self), grads, trainable_variables)

    return apply


def _agreeing(plain_check, our_apply):
    """`check_finite` that asks all ranks, for subclasses whose own `apply` looks before anything is reduced."""

    @functools.wraps(plain_check)
    def check_finite(self, grads):
        finite = plain_check(self, grads)
        if type(self).apply is our_apply or not is_wrapped(self.inner_optimizer):
            return finite
        reduction = reduction_of(self.inner_optimizer)
        if reduction.is_paused:
            return finite
        name = f"{reduction.settings.name or 'optimizer'}.finite"
        return tf.cast(ops.allreduce(tf.cast(finite, tf.int32), op=Min, name=name), tf.bool)

    return check_finite
