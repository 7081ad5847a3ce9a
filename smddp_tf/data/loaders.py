"""The loaders of `horovod.data`: a base class for batches by iteration, and a mix-in that loads ahead in a thread."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any

__all__ = ["AsyncDataLoaderMixin", "BaseDataLoader"]

_END = object()


class BaseDataLoader:
    """Batches by iteration. Define `__len__` and `_iterate`."""

    def __len__(self) -> int:
        """The number of batches."""
        raise NotImplementedError("A data loader must define __len__, its number of batches.")

    def _iterate(self) -> Iterator[Any]:
        """Yields the batches of one epoch."""
        raise NotImplementedError("A data loader must define _iterate, which yields the batches of one epoch.")

    def __iter__(self) -> Iterator[Any]:
        """One epoch."""
        for batch in self._iterate():
            yield self._process_batch(batch)

    def _process_batch(self, batch: Any) -> Any:
        """Transforms a batch before it is returned: unchanged, unless overridden."""
        return batch


class AsyncDataLoaderMixin:
    """Loads batches ahead, in a thread. Put it before the loader: `class Mine(AsyncDataLoaderMixin, MyLoader)`.

    An exception of `_iterate` in the thread is raised to the caller that iterates. Every epoch has a thread of its
    own, which ends with the epoch, with `close_async_loader`, or when iteration is given up.

    Args:
        async_loader_queue_size: number of batches to hold; 0 loads without a thread. Defaults to 64.
        debug_data_loader: bool, prints when a thread begins and ends. Defaults to `False`.
        args: further ones, and others by name, are those of the loader.
    """

    def __init__(
        self, async_loader_queue_size: int = 64, debug_data_loader: bool = False, *args: Any, **kwargs: Any
    ) -> None:
        self.async_loader_queue_size = async_loader_queue_size
        self.debug_data_loader = debug_data_loader
        self._epoch: _Epoch | None = None
        super().__init__(*args, **kwargs)

    def __iter__(self) -> Iterator[Any]:
        """One epoch."""
        if self.async_loader_queue_size <= 0:
            yield from super().__iter__()  # type: ignore[misc]
            return
        self.close_async_loader()
        epoch = self._epoch = _Epoch(self._iterate, self.async_loader_queue_size, self.debug_data_loader)  # type: ignore[attr-defined]
        try:
            for batch in epoch:
                yield self._process_batch(batch)  # type: ignore[attr-defined]
        finally:
            epoch.close()

    def close_async_loader(self) -> None:
        """Ends the thread, if there is one."""
        if self._epoch is not None:
            self._epoch.close()
            self._epoch = None


class _Epoch:
    def __init__(self, iterate: Callable[[], Iterator[Any]], size: int, debug: bool) -> None:
        self._iterate = iterate
        self._debug = debug
        self._closed = threading.Event()
        self._error: BaseException | None = None  # of the thread
        self._batches: queue.Queue[Any] = queue.Queue(size)
        self._thread = threading.Thread(target=self._load, name="smddp-data-loader", daemon=True)
        self._thread.start()

    def __iter__(self) -> Iterator[Any]:
        while (batch := self._batches.get()) is not _END:
            yield batch
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        self._closed.set()
        while self._thread.is_alive() or not self._batches.empty():
            with contextlib.suppress(queue.Empty):
                self._batches.get(timeout=0.05)
        self._error = None
        self._batches.put(_END)  # for an iteration that still waits

    def _load(self) -> None:
        self._say("begins")
        try:
            for batch in self._iterate():
                if self._closed.is_set():
                    return
                self._batches.put(batch)
        except BaseException as error:
            self._error = error
        finally:
            self._batches.put(_END)
            self._say("ends")

    def _say(self, what: str) -> None:
        if self._debug:
            print(f"{self._thread.name}: {what}", flush=True)
