"""The state that a training job saves at its commits, and sends to all ranks at its syncs. Needs no TensorFlow."""

from __future__ import annotations

import functools
import math
import os
import pickle
import queue
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from smddp_tf import basics, urls
from smddp_tf._native.threads import of_thread
from smddp_tf.exceptions import HostsUpdatedInterrupt
from smddp_tf.lifecycle.restart_settings import COMMIT_DIR
from smddp_tf.rendezvous import rounds

if TYPE_CHECKING:
    from smddp_tf.elastic.commits import CommitFolder


class HostUpdateResult:
    """The changes of the hosts, as bits."""

    no_update = 0
    added = 1
    removed = 2
    mixed = added | removed


def _broadcast_object(obj: object) -> Any:
    from smddp_tf.collectives.objects import broadcast_object  # which needs cloudpickle

    return broadcast_object(obj, name=of_thread("hvd.elastic (state)"))


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
        self._folder: CommitFolder | None = None
        self._has_resumed = False
        self._lacks_parts = False  # has `from_disk` left out what each rank takes over itself?
        if folder := os.environ.get(COMMIT_DIR):
            self.commit_to(folder)

    def commit_to(self, folder: str | os.PathLike[str], keep: int = 2, prefix: str = "") -> None:
        """From now on every `commit` is also written to a folder, and `elastic.run` begins with the newest one there.

        Rank 0 writes, and whichever process is rank 0 after a restart reads: the folder must be the same one on all
        hosts. `SMDDP_COMMIT_DIR`, which `smddprun --elastic` sets, does this for every state. Call it before `run`.

        Args:
            folder: where; made, for this user alone, when it is not there. Or a URL that `fsspec` knows, such as
                "s3://bucket/job17", which only those may write whom this program trusts.
            keep: how many commits stay. Defaults to 2.
            prefix: the beginning of the names of the files, for several states in one folder. Defaults to none.
        """
        from smddp_tf.elastic.commits import commits_in  # which needs cloudpickle

        self._folder = commits_in(folder, keep, prefix)

    def register_reset_callbacks(self, callbacks: Iterable[Callable[[], Any]]) -> None:
        """Adds functions that are called, without arguments, after each reset, such as to rescale a learning rate."""
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

    def commit(self, wait: bool = False) -> None:
        """Saves, and checks whether hosts have changed. All ranks call it at the same step.

        With a folder (`commit_to`) a thread of rank 0 writes what was saved while training continues, and threads of
        the other ranks send their parts of partitioned variables. The next `commit` begins when that is done.

        Args:
            wait: return on every rank when this commit is in the folder. Defaults to False.

        Raises:
            HostsUpdatedInterrupt: They have. What was saved is kept.
            OSError: Rank 0 could not write this commit, or the one before. Raised on every rank; earlier ones are still
                in the folder.
        """
        self.save()
        self._keep_elsewhere(wait)
        self._check_host_updates(self._write_together(self._folder, wait) if self._folder is not None else "")

    def check_host_updates(self) -> None:
        """Asks rank 0 whether hosts have changed, so that all ranks act at the same step.

        Raises:
            HostsUpdatedInterrupt: They have; with `skip_sync` when hosts have only gone.
        """
        self._check_host_updates("")

    def _check_host_updates(self, problem: str) -> None:
        before = latest = self._last_updated_timestamp
        if self._rank() == 0 and rounds.hosts_updated():
            self.on_hosts_updated(max(time.time(), math.nextafter(latest, math.inf)))
        update = HostUpdateResult.no_update
        while not self._host_messages.empty():
            timestamp, what = self._host_messages.get()
            if timestamp > latest:
                latest, update = timestamp, update | what
        before, self._last_updated_timestamp, update, problem = self._bcast_object((before, latest, update, problem))
        if problem:
            raise OSError(problem)
        if self._last_updated_timestamp > before:
            raise HostsUpdatedInterrupt(update == HostUpdateResult.removed)

    def finish_commit(self) -> None:
        """Waits until the last commit is in the folder. `run` calls it when the training function has returned.

        Raises:
            OSError: This is rank 0, and could not write it.
        """
        if self._folder is not None and (problem := self._problem_of(self._folder, self._folder.finish)):
            raise OSError(problem)

    def _write_together(self, folder: CommitFolder, wait: bool) -> str:
        """Rank 0 begins to write what was saved; returns what went wrong with it, or with the commit before."""
        if self._rank() != 0:
            return ""
        return self._problem_of(folder, lambda: folder.begin(functools.partial(folder.write, self._frozen()), wait))

    def _frozen(self) -> Any:
        """`to_disk()`, or the bytes of its pickle: nothing of it changes while a thread writes it."""
        import cloudpickle

        return cloudpickle.dumps(self.to_disk())

    def _problem_of(self, folder: CommitFolder, write: Callable[[], Any]) -> str:
        try:
            write()
        except Exception as error:  # the others wait for this rank
            return urls.shown(f"Rank 0 could not write a commit to {folder.path}: {type(error).__name__}: {error}")
        return ""

    def _keep_elsewhere(self, wait: bool = False) -> None:
        """Begins to copy what other ranks do not have to where it survives this process."""

    def _take_parts(self, commit: Iterator[Any]) -> None:
        """Called on every rank with the content of a commit of which `from_disk` has left something out."""

    def resume(self) -> None:
        """Takes over the newest commit of the folder, once in the life of a process; `run` calls it, before `sync`.

        Where rank 0 has a state already, a process that has come later gets that one, by `sync`.

        Raises:
            OSError: Rank 0 could not read it, or does not see a commit that another rank sees. Raised on every rank
                that knows.
        """
        if self._folder is None:
            return
        reads = self._rank() == 0 and not self._has_resumed
        answer = self._bcast_object((*self._read(self._folder), self._lacks_parts) if reads else None)
        if answer is None:
            return
        number, problem, lacks_parts = answer
        if problem:
            raise OSError(problem)
        if (seen := self._folder.newest()) > number:
            raise OSError(
                f"Rank 0 sees commits up to {number} in {urls.shown(self._folder.path)}, rank {self._rank()} up to "
                f"{seen}. The folder must be the same one on all hosts, for example on a shared file system."
            )
        if lacks_parts:
            commit = self._folder.read_each()
            next(commit)
            self._take_parts(commit)
        self._has_resumed = reads  # the others get it by `sync`

    def note_synced(self) -> None:
        """Called by `run` when all ranks have the same state: from now on this process needs no commit from disk."""
        self._has_resumed = True

    def _read(self, folder: CommitFolder) -> tuple[int, str]:
        """Takes over the newest commit, if there is one; returns the newest number there, and what went wrong."""
        where = urls.shown(folder.path)
        try:
            number, content = folder.read()
            if number:
                self.from_disk(content)
                print(f"smddp_tf.elastic: continues from commit {number} of {where}", file=sys.stderr)
            return folder.newest(), ""
        except Exception as error:  # the others wait for this rank
            return 0, urls.shown(f"Rank 0 could not take over a commit of {where}: {type(error).__name__}: {error}")

    def to_disk(self) -> Any:
        """The values of the last `save`, in a form that `cloudpickle` can pickle. For custom states."""
        raise NotImplementedError("A state whose commits are written to disk must define to_disk() and from_disk().")

    def from_disk(self, content: Any) -> None:
        """Makes `content`, which `to_disk` gave, what `save` kept last, and restores it."""
        raise NotImplementedError("A state whose commits are written to disk must define to_disk() and from_disk().")

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

    Assign to the attributes as training continues (`state.epoch += 1`). An object that is changed in place, instead of
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
        self, bcast_object: Callable[[Any], Any] | None = None, get_rank: Callable[[], int] | None = None, **kwargs: Any
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

    def to_disk(self) -> Any:
        """The saved attributes, by name."""
        return dict(self._saved_state)

    def from_disk(self, content: Any) -> None:
        """Takes over saved attributes, or a pickle of them. Those that the program has no more are dropped."""
        content = pickle.loads(content) if isinstance(content, bytes) else content
        self._saved_state = {name: content.get(name, value) for name, value in self._saved_state.items()}
        self._set_attrs()

    def _set_attrs(self) -> None:
        for name, value in self._saved_state.items():
            setattr(self, name, value)
