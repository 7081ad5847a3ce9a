"""`horovod.runner.util.threads`, functions in threads; `horovod.runner.common.util.env`, a process's rank."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from smddp_tf.lifecycle.placement import find_placement

__all__ = ["execute_function_multithreaded", "get_env_rank_and_size", "in_thread", "on_event"]


def in_thread(
    target: Callable[..., Any],
    args: Sequence[Any] = (),
    name: str | None = None,
    daemon: bool = True,
    silent: bool = False,
) -> threading.Thread:
    """Calls `target(*args)` in a thread.

    Args:
        target: what to call.
        args: its arguments, as a tuple or a list.
        name: the thread's name.
        daemon: bool, the program may end before it. Defaults to `True`.
        silent: bool, no exceptions are shown. Defaults to `False`.

    Returns:
        The thread, which has been started.

    Raises:
        ValueError: `args` is neither a tuple nor a list.
    """
    if not isinstance(args, (tuple, list)):
        raise ValueError(f"`args` must be a tuple or a list. Received: {args!r}.")

    def call() -> None:
        with contextlib.suppress(Exception) if silent else contextlib.nullcontext():
            target(*args)

    thread = threading.Thread(target=call, name=name, daemon=daemon)
    thread.start()
    return thread


def on_event(
    event: threading.Event,
    func: Callable[..., Any],
    args: Sequence[Any] = (),
    stop: threading.Event | None = None,
    check_stop_interval_s: float = 1.0,
    daemon: bool = True,
    silent: bool = False,
) -> threading.Thread:
    """Calls `func(*args)` in a thread once `event` is set, unless `stop` has been set before.

    Args:
        event: the `threading.Event` to wait for.
        func: the function to call.
        args: its arguments, as a tuple or a list.
        stop: `threading.Event` that ends the wait. Defaults to none.
        check_stop_interval_s: seconds between two checks of `stop`. Defaults to 1.
        daemon: bool, the program may end before the thread. Defaults to `True`.
        silent: bool, no exceptions are shown. Defaults to `False`.

    Returns:
        The thread, which has been started.
    """

    def wait() -> None:
        while not event.wait(check_stop_interval_s if stop else None):
            if stop and stop.is_set():
                return
        func(*args)

    return in_thread(wait, daemon=daemon, silent=silent)


def execute_function_multithreaded(
    fn: Callable[..., Any],
    args_list: Sequence[Sequence[Any]],
    block_until_all_done: bool = True,
    max_concurrent_executions: int = 1000,
) -> dict[int, Any] | None:
    """Calls `fn(*args)` for each of `args_list`, concurrently.

    Args:
        fn: the function to call.
        args_list: the arguments of each call, as sequences.
        block_until_all_done: bool, waits for all calls. Defaults to `True`.
        max_concurrent_executions: integer, the largest number of threads. Defaults to 1000.

    Returns:
        The results by their index in `args_list`; None where it does not wait.
    """
    pool = ThreadPoolExecutor(max(1, min(max_concurrent_executions, len(args_list))))
    calls = [pool.submit(fn, *args) for args in args_list]
    pool.shutdown(wait=block_until_all_done)
    return {index: call.result() for index, call in enumerate(calls)} if block_until_all_done else None


def get_env_rank_and_size() -> tuple[int, int]:
    """This process's rank and the number of ranks, by its launcher's variables; (0, 1) without a launcher."""
    placement = find_placement(os.environ)
    return (0, 1) if placement is None else (placement.rank, placement.size or 1)
