"""Every rank draws random numbers of its own from seed generators whose states are the same on all ranks.

The state of a layer's `keras.random.SeedGenerator` is one of the model's variables: it is broadcast and restored like
the weights, and equal on all ranks from then on. Drawn as it is, it would give all ranks the same dropout masks and
augmentations. So the rank is folded into what is drawn, not into the state: rank 0 draws what Keras alone would draw,
and whatever brings the state, as often as it likes (a broadcast, a checkpoint, an elastic state), a rank draws the same
numbers from it.

This concerns the generators of layers and models. A generator that belongs to no layer, Keras's global generator
(`keras.random.normal(shape)`, `keras.utils.set_random_seed`) and `tf.random` are left alone: what a script draws from
them, such as the order of the data, may have to be the same on all ranks.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from smddp_tf import basics
from smddp_tf.keras import patch_table, patches

_BELONGS_TO_LAYER = "_smddp_belongs_to_layer"
_SAME_ON_ALL_RANKS = "same_on_all_ranks"  # the user's wish, an attribute of the generator
_STORE = "seed_generators"


def install() -> None:
    """Replaces `SeedGenerator.next`, and notes which generators belong to layers; does nothing the second time."""
    if not any(one.patch is patch_table.SEED for one in patches.applied()):
        patches.wrap(patch_table.SEED, _next)
        patches.wrap(patch_table.SEED_OWNER, _add_to_store)
        note_existing()


def note_existing() -> None:
    """Notes the generators of the layers that were made before."""
    for thing in gc.get_objects():
        if issubclass(type(thing), keras.Layer):  # not isinstance, which asks proxies for what they stand for
            for generator in vars(thing).get("_seed_generators", ()):
                _note(generator)


def _note(generator: keras.random.SeedGenerator) -> None:
    setattr(generator, _BELONGS_TO_LAYER, True)
    generator.state.smddp_agreed = True  # a step moves it alike on all ranks, also where a rank had no data


def _add_to_store(plain: Callable[..., Any], self: Any, store_name: str, value: Any) -> None:
    plain(self, store_name, value)
    if store_name == _STORE:
        _note(value)


def _next(plain: Callable[..., Any], self: Any, *args: Any, **kwargs: Any) -> Any:
    seed = plain(self, *args, **kwargs)
    if not getattr(self, _BELONGS_TO_LAYER, False) or getattr(self, _SAME_ON_ALL_RANKS, False):
        return seed
    return folded(seed, basics.rank()) if basics.is_initialized() and basics.size() > 1 else seed


def folded(seed: tf.Tensor, rank: int) -> tf.Tensor:
    """The seed of a rank, from a seed that is a tensor of two integers: other ones on other ranks, the same on rank 0.

    On rank 0 an operation too, so that all ranks trace the same program.
    """
    return tf.bitwise.bitwise_xor(seed, tf.constant([_scattered(rank), 0], seed.dtype))


def _scattered(rank: int) -> int:
    """31 bits, other ones for each rank, that seem random, so that small seeds of different layers stay different."""
    bits = rank
    for factor in (0x45D9F3B, 0x119DE1F3):  # odd, so that no two ranks get the same
        bits = (bits ^ (bits >> 16)) * factor & 0x7FFFFFFF
    return bits ^ (bits >> 16)
