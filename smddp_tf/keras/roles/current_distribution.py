"""Which `keras.distribution` holds now."""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Callable, Iterator
from typing import Any

from smddp_tf import basics
from smddp_tf.keras import patch_table, patches
from smddp_tf.keras._backend import LEGACY, keras
from smddp_tf.keras.roles import running

_ATTRIBUTE = "distribution"  # its name in Keras's global state
# Instead of Keras's global state, which is kept by thread too: programs set a distribution for a thread.
_of_thread = threading.local()


def keep_through_clear_session() -> None:
    """Keeps each thread's distribution outside of Keras's global state, which `clear_session` empties; once."""
    before = keras.distribution.distribution()
    patches.wrap(patch_table.GET_GLOBAL, _get_global)
    patches.wrap(patch_table.SET_GLOBAL, _set_global)
    keras.distribution.set_distribution(before)


def _get_global(plain: Callable[..., Any], name: str, *args: Any, **kwargs: Any) -> Any:
    return getattr(_of_thread, name, None) if name == _ATTRIBUTE else plain(name, *args, **kwargs)


def _set_global(plain: Callable[..., None], name: str, value: object) -> None:
    return setattr(_of_thread, name, value) if name == _ATTRIBUTE else plain(name, value)


def current() -> Any:
    """Keras's current distribution, where it is one over several ranks; else None.

    Raises:
        ValueError: it has not one device for each rank.
    """
    if LEGACY or not basics.is_initialized() or basics.size() == 1:
        return None
    distribution = keras.distribution.distribution()
    if not getattr(distribution, "_is_multi_process", False):
        return None
    devices = distribution.device_mesh.devices
    if devices.size != basics.size():
        raise ValueError(
            f"A keras.distribution over {basics.size()} ranks needs a mesh with one device for each. Received: "
            f"{devices.tolist()} (this is rank {basics.rank()}). Leave `device_mesh` and `devices` out."
        )
    return distribution


def shards_batches() -> bool:
    """Whether the data are global batches, of which each rank takes a part, and not each rank's own."""
    return getattr(current(), "_auto_shard_dataset", True)


def partition_of(layer: keras.Layer, name: str | None, shape: tuple[int, ...]) -> int | None:
    """Returns the number of parts in which a new weight is stored by the layout map of a `ModelParallel`, else None.

    Args:
        layer: which makes the weight.
        name: of the weight.
        shape: of the weight.
    """
    layout_map = getattr(current(), "_layout_map", None)
    if layout_map is None or name is None:
        return None
    with keras.name_scope(layer.name, caller=layer):
        found = layout_map[keras.Variable("zeros", shape=(), name=name).path]
    if found is None:
        return None
    if len(found.axes) != len(shape):
        raise ValueError(
            f"A layout needs an axis or None for each dimension. Received: {tuple(found.axes)} for the weight '{name}' "
            f"of layer '{layer.name}', of shape {shape}."
        )
    sizes = dict(zip(layout_map.device_mesh.axis_names, layout_map.device_mesh.shape))
    return int(math.prod(sizes[axis] for axis in found.axes if axis is not None)) if any(found.axes) else None


@contextlib.contextmanager
def set_aside() -> Iterator[None]:
    """Inside, on this thread, there is no distribution."""
    before = keras.distribution.distribution()
    keras.distribution.set_distribution(None)
    try:
        yield
    finally:
        keras.distribution.set_distribution(before)


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Inside, on this thread, a callback runs on this rank only: what it does with a model concerns no other rank."""
    with running.within(is_alone=True), contextlib.nullcontext() if LEGACY else set_aside():
        yield


def refuse_alone(what: str) -> None:
    """Raises a RuntimeError where only this rank has come to `what`, which needs all ranks."""
    if running.here.is_alone:
        raise RuntimeError(
            f"{what} needs all ranks. Received: a call in a callback that runs on rank 0 only (on_rank_zero, or one "
            "that writes files under a keras.distribution). Put the call into a callback of its own, derived from "
            "keras.callbacks.Callback, on every rank."
        )
