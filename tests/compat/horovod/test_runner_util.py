"""`horovod.runner.util.threads` and a process's rank by its launcher's variables."""

from __future__ import annotations

import threading

import pytest

from smddp_tf.compat.horovod import runner_util

SECONDS = 10


def test_a_function_in_a_thread() -> None:
    seen: list[object] = []
    thread = runner_util.in_thread(lambda *args: seen.append((*args, threading.current_thread().name)), (1, 2), "mine")
    thread.join(SECONDS)
    assert seen == [(1, 2, "mine")]
    assert thread.daemon
    with pytest.raises(ValueError, match="`args` must be a tuple or a list"):
        runner_util.in_thread(print, "text")


def test_an_error_is_shown_unless_it_shall_be_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[object] = []
    monkeypatch.setattr(threading, "excepthook", lambda args: shown.append(args.exc_type))
    for silent in (True, False):
        runner_util.in_thread(int, ("x",), silent=silent).join(SECONDS)
    assert shown == [ValueError]


def test_an_event_calls_unless_the_wait_is_stopped() -> None:
    seen: list[str] = []
    event, stop = threading.Event(), threading.Event()
    called = runner_util.on_event(event, seen.append, ("called",))
    stopped = runner_util.on_event(threading.Event(), seen.append, ("stopped",), stop, check_stop_interval_s=0.01)
    event.set()
    stop.set()
    called.join(SECONDS)
    stopped.join(SECONDS)
    assert not called.is_alive()
    assert not stopped.is_alive()
    assert seen == ["called"]


def test_calls_in_threads_have_the_results_of_their_places() -> None:
    results = runner_util.execute_function_multithreaded(pow, [(2, 5), (3, 2), (5, 0)], max_concurrent_executions=2)
    assert results == {0: 32, 1: 9, 2: 1}
    assert runner_util.execute_function_multithreaded(pow, []) == {}
    done = threading.Event()
    assert runner_util.execute_function_multithreaded(done.set, [()], block_until_all_done=False) is None
    assert done.wait(SECONDS)


def test_the_rank_is_the_launchers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner_util.os, "environ", {})
    assert runner_util.get_env_rank_and_size() == (0, 1)
    monkeypatch.setattr(runner_util.os, "environ", {"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "5"})
    assert runner_util.get_env_rank_and_size() == (3, 5)
