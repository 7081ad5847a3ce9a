"""What a collective of a process group returns: something to wait for."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._compile import _disable_dynamo

Tensors = Sequence[torch.Tensor]
Copies = Sequence[tuple[torch.Tensor, torch.Tensor]]


def untraced(cls: type) -> type:
    """Keeps `torch.compile` from looking into the methods of a class."""
    for name, method in list(vars(cls).items()):
        if callable(method) and not name.startswith("__"):
            setattr(cls, name, _disable_dynamo(method))
    return cls


@untraced
class Work(dist.Work):
    """A request of the engine, which keeps the tensors until it has ended.

    Threads: any may wait, and several at once.
    """

    def __init__(self, request: Any, name: str, result: Tensors, copies: Copies, timeout: timedelta) -> None:
        """Takes over a request that has been submitted.

        Args:
            request: `_core.SubmittedRequest`.
            name: the request's, for messages.
            result: the tensors that hold the result.
            copies: tensors of the caller, and what is copied there when the request has ended.
            timeout: the group's.
        """
        super().__init__()
        self._request, self._name, self._result, self._timeout = request, name, list(result), timeout
        self._copies, self._lock = list(copies), threading.Lock()

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        """Waits until the result is there.

        Args:
            timeout: how long; 0: the group's.

        Raises:
            RuntimeError: the collective has failed, or has not ended within `timeout`.
        """
        limit = timeout or self._timeout
        if not self._has_ended(limit.total_seconds()):
            raise RuntimeError(f"{self._name} has not ended within {limit}. The stall warning names who is missing.")
        return True

    def is_completed(self) -> bool:
        """Whether it has ended, be it with an error, which `wait` raises."""
        try:
            return self._has_ended(0.0)
        except RuntimeError:
            return True

    def _has_ended(self, seconds: float) -> bool:
        if not self._request.wait(seconds):
            return False
        with self._lock:
            for target, source in self._copies:
                with torch.inference_mode(target.is_inference()), torch.no_grad():
                    target.copy_(source.view(target.shape))
            self._copies.clear()
        return True

    def result(self) -> list[torch.Tensor]:
        """The tensors that hold the result."""
        return self._result

    def get_future(self) -> Any:
        """A future of `result()`. In C++, too, it raises what the collective failed with."""
        future = torch.futures.Future()
        checked = future.then(_value_or_error)  # `set_exception` of a future is seen in Python only
        # Of its own: what follows a future may wait for another one.
        threading.Thread(target=self._fulfil, args=(future,), name=f"smddp {self._name}").start()
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
