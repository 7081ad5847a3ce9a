"""Where the parts of a tf.data service find each other: dispatchers, their workers, and the trainers.

One small server, run by rank 0 of the compute job, keeps addresses and says when all is over. It is a manager of
Python's `multiprocessing`, whose connections are authenticated with a key.
"""

from __future__ import annotations

import secrets
import socket
import threading
import time
from multiprocessing.managers import BaseManager
from typing import Any

__all__ = ["ComputeClient", "ComputeService", "my_address"]

_PATIENCE_SECONDS = 1.0  # a client asks again after so long, so no connection waits for ever


class _Registry:
    """What is known so far. Every connection has a thread of its own, so waiting is allowed."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._dispatchers: dict[int, str] = {}
        self._workers: dict[int, set[int]] = {}
        self._over = False

    def add_dispatcher(self, dispatcher: int, address: str) -> None:
        with self._changed:
            if self._dispatchers.setdefault(dispatcher, address) != address:
                raise ValueError(
                    f"Dispatcher {dispatcher} is registered already, at {self._dispatchers[dispatcher]}. "
                    f"Received: {address}. Start each dispatcher once."
                )
            self._changed.notify_all()

    def add_worker(self, dispatcher: int, worker: int) -> None:
        with self._changed:
            self._workers.setdefault(dispatcher, set()).add(worker)
            self._changed.notify_all()

    def end(self) -> None:
        with self._changed:
            self._over = True
            self._changed.notify_all()

    def dispatcher(self, dispatcher: int) -> str | None:
        with self._changed:
            self._changed.wait_for(lambda: dispatcher in self._dispatchers, _PATIENCE_SECONDS)
            return self._dispatchers.get(dispatcher)

    def has_workers(self, dispatcher: int, count: int) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: len(self._workers.get(dispatcher, ())) >= count, _PATIENCE_SECONDS)

    def is_over(self) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: self._over, _PATIENCE_SECONDS)


class ComputeService:
    """The server. Ends with `close` or the process.

    Attributes:
        address: tuple of host and port.
        key: bytes, what clients must know.
    """

    def __init__(self) -> None:
        registry = _Registry()

        class Server(BaseManager):
            pass

        Server.register("registry", callable=lambda: registry)
        self.key = secrets.token_bytes(32)
        # An address of its own and not all of them: clients are told to come back to it.
        manager: Any = Server((my_address(), 0), self.key)
        server = manager.get_server()
        self._server = server
        self.address = (str(server.address[0]), int(server.address[1]))
        threading.Thread(target=self._serve, name="smddp-compute-service", daemon=True).start()

    def close(self) -> None:
        """Takes no further clients."""
        self._server.stop_event.set()

    def _serve(self) -> None:
        try:
            self._server.serve_forever()
        except SystemExit:  # how a manager's server ends
            pass


class ComputeClient:
    """Talks to a `ComputeService`.

    Args:
        address: host and port of the service.
        key: bytes, its key.
        timeout: seconds that the waiting functions wait.

    Raises:
        OSError: nobody answers there.
    """

    def __init__(self, address: tuple[str, int], key: bytes, timeout: float) -> None:
        class Client(BaseManager):
            pass

        Client.register("registry")
        manager: Any = Client((address[0], address[1]), key)
        manager.connect()
        self._registry = manager.registry()
        # At the end of a process a proxy tells the server that it goes, and waits for the answer: for ever when the
        # server's own process is already ending. Nothing is kept for it there, so it may go without a word.
        self._registry._close.cancel()
        self._timeout = timeout

    def register_dispatcher(self, dispatcher: int, address: str) -> None:
        """Tells everybody that dispatcher number `dispatcher` can be reached at "host:port"."""
        self._registry.add_dispatcher(dispatcher, address)

    def wait_for_dispatcher_registration(self, dispatcher: int) -> str:
        """Returns the address of a dispatcher as soon as it is there; TimeoutError when it does not come."""
        return self._wait(lambda: self._registry.dispatcher(dispatcher), f"Dispatcher {dispatcher} was not started")

    def register_worker_for_dispatcher(self, dispatcher: int, worker: int) -> None:
        """Tells everybody that worker number `worker` works for a dispatcher."""
        self._registry.add_worker(dispatcher, worker)

    def wait_for_dispatcher_worker_registration(self, dispatcher: int, workers: int) -> None:
        """Waits until a dispatcher has `workers` workers; TimeoutError when they do not come."""
        self._wait(
            lambda: self._registry.has_workers(dispatcher, workers),
            f"Dispatcher {dispatcher} did not get its {workers} workers",
        )

    def shutdown(self) -> None:
        """Lets all that wait in `wait_for_shutdown` go on."""
        self._registry.end()

    def wait_for_shutdown(self) -> None:
        """Waits for `shutdown`, as long as it takes, or until the service has gone."""
        try:
            while not self._registry.is_over():
                pass
        except (EOFError, OSError):
            pass

    def _wait(self, ask: Any, failure: str) -> Any:
        give_up_at = time.monotonic() + self._timeout
        while True:
            answer = ask()
            if answer:
                return answer
            if time.monotonic() > give_up_at:
                raise TimeoutError(f"{failure} within {self._timeout} s. Is the compute job running?")


def my_address() -> str:
    """An address of this host that others can reach, as far as name resolution knows one."""
    try:
        return socket.gethostbyname(socket.gethostname())
    except OSError:
        return "127.0.0.1"
