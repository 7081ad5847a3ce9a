"""What a collective of a process group returns: something to wait for."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Executor
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from smddp_tf._native.requests import NO_LIMIT

Tensors = Sequence[torch.Tensor]
Copies = Sequence[tuple[torch.Tensor, torch.Tensor]]


class Work(dist.Work):
    """A request of the engine, which keeps the tensors until it has ended.

    Threads: any may wait, and several at once.
    """

    def __init__(self, request: Any, name: str, result: Tensors, copies: Copies, waiting: Executor) -> None:
        """Takes over a request that has been submitted.

        Args:
            request: `_core.SubmittedRequest`.
            name: the request's, for messages.
            result: the tensors that hold the result.
            copies: tensors of the caller, and what is copied there when the request has ended.
            waiting: its thread waits for works whose futures are asked for, in the group's order.
        """
        super().__init__()
        self._request, self._name, self._result, self._waiting = request, name, list(result), waiting
        self._copies, self._lock = list(copies), threading.Lock()

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        """Waits until the result is there.

        Args:
            timeout: how long; 0: until the request has ended, be it with an error.

        Raises:
            RuntimeError: the collective has failed, or has not ended within `timeout`.
        """
        if not self._request.wait(timeout.total_seconds() or NO_LIMIT):
            raise RuntimeError(f"{self._name} has not ended within {timeout}. The stall warning names who is missing.")
        with self._lock, torch.no_grad():
            for target, source in self._copies:
                target.copy_(source.view(target.shape))
            self._copies.clear()
        return True

    def is_completed(self) -> bool:
        """Whether it has ended, be it with an error, which `wait` raises."""
        try:
            return bool(self._request.wait(0.0))
        except RuntimeError:
            return True

    def result(self) -> list[torch.Tensor]:
        """The tensors that hold the result."""
        return self._result

    def get_future(self) -> Any:
        """A future of `result()`. In C++, too, it raises what the collective failed with."""
        future = torch.futures.Future()
        checked = future.then(_value_or_error)  # `set_exception` of a future is seen in Python only
        self._waiting.submit(self._fulfil, future)
        return checked

    def _fulfil(self, future: Any) -> None:
        try:
            self.wait()
        except Exception as error:
            future.set_result(error)
        else:
            future.set_result(self._result)


def _value_or_error(future: Any) -> Any:
    value = future.value()
    if isinstance(value, Exception):
        raise value
    return value
