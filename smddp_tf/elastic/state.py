"""What a training job keeps at its commits, and gives to all ranks at its syncs. Needs no TensorFlow."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterable
from typing import Any

from smddp_tf import basics
from smddp_tf.exceptions import HostsUpdatedInterrupt

__all__ = ["HostUpdateResult", "ObjectState", "State"]


class HostUpdateResult:
    """What has happened to the hosts, as bits."""

    no_update = 0
    added = 1
    removed = 2
    mixed = added | removed


def _broadcast_object(obj: Any) -> Any:
    from smddp_tf.objects import broadcast_object  # which needs cloudpickle

    return broadcast_object(obj, name="elastic.state")


class State:
    """The base of all states: commits, messages about hosts, and callbacks after a reset.

    Args:
        bcast_object: called as `bcast_object(obj)`; returns rank 0's object on every rank. Defaults to
            `hvd.broadcast_object`.
        get_rank: tells this process's rank. Defaults to `hvd.rank`.
    """

    def __init__(
        self, bcast_object: Callable[[Any], Any] | None = None, get_rank: Callable[[], int] | None = None
    ) -> None:
        self._bcast_object = bcast_object or _broadcast_object
        self._rank = get_rank or basics.rank
        self._host_messages: queue.Queue[tuple[float, int]] = queue.Queue()
        self._last_updated_timestamp: float = 0
        self._reset_callbacks: list[Callable[[], Any]] = []

    def register_reset_callbacks(self, callbacks: Iterable[Callable[[], Any]]) -> None:
        """Adds functions that are called, without arguments, after each reset: where a learning rate is scaled anew."""
        self._reset_callbacks.extend(callbacks)

    def on_reset(self) -> None:
        """Called by `run` when a new session has begun: forgets messages, calls `reset` and the callbacks."""
        self._host_messages = queue.Queue()
        self.reset()
        for callback in self._reset_callbacks:
            callback()

    def on_hosts_updated(self, timestamp: float, update_res: int = HostUpdateResult.added) -> None:
        """Notes that hosts have changed; the next `check_host_updates` acts on it.

        Args:
            timestamp: when; a message that is not newer than the last one acted on is dropped.
            update_res: a `HostUpdateResult`.
        """
        self._host_messages.put((timestamp, update_res))

    def commit(self) -> None:
        """Saves, and looks whether hosts have changed. All ranks call it at the same step.

        Raises:
            HostsUpdatedInterrupt: They have. What was saved is kept.
        """
        self.save()
        self.check_host_updates()

    def check_host_updates(self) -> None:
        """Asks rank 0 whether hosts have changed, so that all ranks act at the same step.

        Raises:
            HostsUpdatedInterrupt: They have; with `skip_sync` when hosts have only gone.
        """
        before = latest = self._last_updated_timestamp
        update = HostUpdateResult.no_update
        while not self._host_messages.empty():
            timestamp, what = self._host_messages.get()
            if timestamp > latest:
                latest, update = timestamp, update | what
        before, self._last_updated_timestamp, update = self._bcast_object((before, latest, update))
        if self._last_updated_timestamp > before:
            raise HostsUpdatedInterrupt(update == HostUpdateResult.removed)

    def save(self) -> None:
        """Keeps the present values in memory."""
        raise NotImplementedError("A state must define save().")

    def restore(self) -> None:
        """Goes back to what was saved last."""
        raise NotImplementedError("A state must define restore().")

    def sync(self) -> None:
        """Gives every rank the values of rank 0."""
        raise NotImplementedError("A state must define sync().")

    def reset(self) -> None:
        """Called after a new session has begun, before the reset callbacks. Does nothing here."""


class ObjectState(State):
    """A state of Python objects: each keyword argument becomes an attribute of the same name.

    Assign to the attributes as training goes on (`state.epoch += 1`). An object that is changed in place, instead of
    being replaced, is not brought back by `restore`: only references are kept.

    Example:

    >>> state = hvd.elastic.ObjectState(epoch=0, batch=0)
    >>> state.epoch = 3
    >>> state.restore()
    >>> state.epoch
    0

    Args:
        bcast_object: see `State`.
        get_rank: see `State`.
        kwargs: the objects. `cloudpickle` must be able to send them.
    """

    def __init__(
        self,
        bcast_object: Callable[[Any], Any] | None = None,
        get_rank: Callable[[], int] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(bcast_object, get_rank)
        self._saved_state = kwargs
        self._set_attrs()

    def save(self) -> None:
        """Keeps the attributes as they are now."""
        self._saved_state = {name: getattr(self, name) for name in self._saved_state}

    def restore(self) -> None:
        """Gives the attributes their values of the last `save`, or those they were made with."""
        self._set_attrs()

    def sync(self) -> None:
        """Gives the attributes the values that rank 0 saved last. What was not saved is lost on rank 0 too."""
        if self._saved_state:
            self._saved_state = self._bcast_object(self._saved_state)
            self._set_attrs()

    def _set_attrs(self) -> None:
        for name, value in self._saved_state.items():
            setattr(self, name, value)
