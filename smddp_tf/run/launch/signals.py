"""Signals that the launcher gets while a job runs."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

_SECOND_SECONDS = 0.5  # one that comes earlier is the same: `timeout` sends it to the process and to its group
_FORWARDED = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGTSTP, signal.SIGCONT)


class LauncherSignals:
    """The signals that have arrived. Handlers only note them; the job's loop acts.

    Attributes:
        ending: the first signal that ends the job, SIGINT, SIGTERM or SIGHUP; 0: none yet.
        to_forward: signals that the ranks have yet to get.
    """

    def __init__(self) -> None:
        self.ending, self._ending_at = 0, 0.0
        self.to_forward: set[int] = set()
        self._insists = False

    @contextlib.contextmanager
    def taken(self) -> Iterator[None]:
        """Inside, signals are noted here, if this is the main thread."""
        previous = {sign: signal.signal(sign, handler) for sign, handler in self._handlers().items()}
        try:
            yield
        finally:
            for sign, handler in previous.items():
                signal.signal(sign, handler)

    def take_second(self) -> bool:
        """Has another ending signal come, since this was asked last? Then the job is to end at once."""
        insists, self._insists = self._insists, False
        return insists

    def _handlers(self) -> dict[int, Any]:
        if threading.current_thread() is not threading.main_thread():
            return {}
        ending = [signal.SIGINT, signal.SIGTERM]
        if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # not under nohup
            ending.append(signal.SIGHUP)
        handlers = dict.fromkeys(ending, self._on_ending)
        forwarded = [sign for sign in _FORWARDED if signal.getsignal(sign) != signal.SIG_IGN]
        return handlers | dict.fromkeys(forwarded, lambda sign, _: self.to_forward.add(sign))

    def _on_ending(self, sign: int, _: Any) -> None:
        now = time.monotonic()
        if not self.ending:
            self.ending, self._ending_at = sign, now
        elif now > self._ending_at + _SECOND_SECONDS:
            self._insists = True
