"""Runs a training function again and again until it returns, each time in a new session."""

from __future__ import annotations

import functools
import os
import re
import sys
from collections.abc import Callable
from typing import Any

from smddp_tf import basics
from smddp_tf._native import loader
from smddp_tf.exceptions import HorovodInternalError, HostsUpdatedInterrupt, reason_of, without_reason
from smddp_tf.rendezvous import rounds

# Reasons why a request failed because of other ranks, while the session has not failed or is over.
_LOST = frozenset({"peer_left", "shut_down", "step_given_up", "timed_out", "transport_failed"})
# Failures of a session that a new session cannot fix.
_BROKEN = frozenset({"internal", "data_loss"})
_MOST_FAILED_RESETS = 8


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """Makes a training function survive the loss of a session.

    The function's first argument is its state. Before it is called, `state.sync()` gives every rank the state of rank
    0. Then,

    - when it raises `HorovodInternalError`, or an error of the engine that means the same (a rank has left, a step was
      given up, MPI failed), the state goes back to its last commit;
    - when it raises `HostsUpdatedInterrupt` (from `state.commit()`), the state stays as it is, and the next `sync` is
      left out if the interrupt says so;

    and a new session begins (`hvd.shutdown()`, `hvd.init()`), `state.on_reset()` calls the reset callbacks, and the
    function is called again. All other exceptions are re-raised. No code before the call of `func` may communicate
    with other ranks.

    Under `smddprun --no-mpi --elastic` a process that dies is left out of the new session, and processes that have come
    are in it: ranks, sizes and parts of the data are new. Under `mpirun` it ends the job, and `smddprun --elastic`
    starts the job again; the state then begins with its last commit on disk (`State.commit_to`).

    Example:

    >>> @hvd.elastic.run
    ... def train(state):
    ...     for state.epoch in range(state.epoch, epochs):
    ...         for state.batch in range(state.batch, batches_per_epoch):
    ...             train_step(next(batches))
    ...             if state.batch % 100 == 0:
    ...                 state.commit()
    ...         state.batch = 0
    >>> train(hvd.elastic.TensorFlowKerasState(model, optimizer, batch=0, epoch=0))

    Args:
        func: called as `func(state, ...)`.

    Returns:
        A function with the arguments of `func`, which returns what `func` returns.
    """
    return run_fn(func, basics.restart)


def run_fn(func: Callable[..., Any], reset: Callable[[], Any]) -> Callable[..., Any]:
    """`run` with a custom function that begins a new session.

    Args:
        func: called as `func(state, ...)`.
        reset: called without arguments; leaves the old session and joins the new one.

    Returns:
        A function of `(state, ...)` that calls `func` again after each recovery, and returns its result.
    """

    @functools.wraps(func)
    def wrapper(state: Any, *args: Any, **kwargs: Any) -> Any:
        skip_sync = resets = False
        failed_resets = 0  # in a row
        while True:
            try:
                if resets:
                    reset()
                    state.on_reset()
                resets, failed_resets = False, 0
                _synchronize(state, skip_sync)
                result = func(state, *args, **kwargs)
                if hasattr(state, "finish_commit"):
                    state.finish_commit()
                return result
            except HostsUpdatedInterrupt as interrupt:
                skip_sync = interrupt.skip_sync
                _check_no_rank_has_ended(interrupt)
                resets = True
            except Exception as error:
                if not isinstance(error, HorovodInternalError) and not is_lost_session(error):
                    raise
                _check_no_rank_has_ended(error)
                failed_resets += resets  # another rank may be lost while a session begins
                if resets and (failed_resets > _MOST_FAILED_RESETS or not rounds.in_rounds(os.environ)):
                    raise
                resets = True
                print(f"smddp_tf.elastic: back to the last commit, after {_in_short(error)}", file=sys.stderr)
                state.restore()
                skip_sync = False

    return wrapper


def _synchronize(state: Any, skip_sync: bool) -> None:
    has_folder = hasattr(state, "resume")  # states of one's own may have none
    if has_folder:
        state.resume()
    if not skip_sync:
        state.sync()
    if has_folder:
        state.note_synced()
    rounds.note_state()


def is_lost_session(error: BaseException) -> bool:
    """True for errors of the engine that a new session can fix; false for wrong calls and for all other errors.

    A rank that has died or is silent is such an error only where a job continues without it (`rendezvous/rounds.py`):
    elsewhere a new session would wait for it, so the job ends, and can be started again. An uncaught exception on
    another rank ends the job as well.
    """
    core = loader.core()
    reason = reason_of(error)
    if reason is None or (core.is_initialized() and core.raised_elsewhere()):
        return False
    if failure := core.session_failure():
        return failure[0] not in _BROKEN and (failure[0] != "peer_lost" or rounds.in_rounds(os.environ))
    return reason in _LOST or (reason == "peer_lost" and rounds.in_rounds(os.environ))


def _check_no_rank_has_ended(error: BaseException) -> None:
    """Raises RuntimeError where a rank will not come to the next session, because its program has ended."""
    if basics.is_initialized() and (rank := loader.core().stats()["ended_rank"]) >= 0:
        raise RuntimeError(
            f"Rank {rank} has ended its program while this rank was still training, so it cannot join a new session. "
            "Its own output says why. All ranks must leave the training function at the same step: do they have the "
            "same number of steps?"
        ) from error


def _in_short(error: BaseException) -> str:
    """Its kind and first line; of an error in a graph the engine's line, without the name of TensorFlow's function."""
    lines = str(error).strip().splitlines() or [""]
    line = next((line for line in lines if without_reason(line) != line), lines[0])
    return f"{type(error).__name__}: {re.sub('^{{.*?}} ', '', without_reason(line))}"
