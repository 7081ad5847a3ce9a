"""Where the parts of a tf.data service find each other: dispatchers, their workers, and the trainers.

One small server, run by rank 0 of the compute job, keeps addresses and says when all is over. It is a manager of
Python's `multiprocessing`, whose connections are authenticated with a key.
"""

from __future__ import annotations

import contextlib
import secrets
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from multiprocessing import AuthenticationError
from multiprocessing.managers import BaseManager
from typing import Any

_PATIENCE_SECONDS = 1.0  # a client asks again after so long, so no connection waits for ever
_ANSWER_SECONDS = 30.0  # a service that does not answer for so long is gone, with its host or the network to it


class _Registry:
    """The registered servers. Every connection has a thread of its own, so waiting is allowed."""

    def __init__(self, dispatchers: int, workers_per_dispatcher: int) -> None:
        self._count, self._workers_per_dispatcher = dispatchers, workers_per_dispatcher
        self._changed = threading.Condition()
        self._dispatchers: dict[int, str] = {}
        self._workers: dict[int, set[int]] = {}
        self._over = False

    def add_dispatcher(self, dispatcher: int, address: str) -> None:
        self._check(dispatcher)
        with self._changed:
            if self._dispatchers.setdefault(dispatcher, address) != address:
                raise ValueError(
                    f"Dispatcher {dispatcher} is registered already, at {self._dispatchers[dispatcher]}. "
                    f"Received: {address}. Start each dispatcher once."
                )
            self._changed.notify_all()

    def add_worker(self, dispatcher: int, worker: int) -> None:
        self._check(dispatcher)
        with self._changed:
            self._workers.setdefault(dispatcher, set()).add(worker)
            self._changed.notify_all()

    def end(self) -> None:
        with self._changed:
            self._over = True
            self._changed.notify_all()

    def dispatcher(self, dispatcher: int) -> str | None:
        self._check(dispatcher)
        with self._changed:
            self._changed.wait_for(lambda: dispatcher in self._dispatchers, _PATIENCE_SECONDS)
            return self._dispatchers.get(dispatcher)

    def has_workers(self, dispatcher: int) -> bool:
        self._check(dispatcher)
        with self._changed:
            return self._changed.wait_for(
                lambda: len(self._workers.get(dispatcher, ())) >= self._workers_per_dispatcher, _PATIENCE_SECONDS
            )

    def is_over(self) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: self._over, _PATIENCE_SECONDS)

    def _check(self, dispatcher: int) -> None:
        if not 0 <= dispatcher < self._count:
            raise ValueError(
                f"The service has {self._count} dispatchers, counted from 0. Received: dispatcher {dispatcher}."
            )


class ComputeService:
    """The server. Ends with `close` or the process.

    Args:
        dispatchers: number of dispatchers.
        workers_per_dispatcher: number of workers of each of them.

    Attributes:
        address: tuple of host and port.
        key: bytes, what clients must know.
    """

    def __init__(self, dispatchers: int, workers_per_dispatcher: int) -> None:
        registry = _Registry(dispatchers, workers_per_dispatcher)

        class Server(BaseManager):
            pass

        Server.register("registry", callable=lambda: registry)
        self.key = secrets.token_bytes(32)
        # One address and not all of them: the server sends it to clients, which connect to it again.
        manager: Any = Server((my_address(), 0), self.key)
        server = manager.get_server()
        self._server = server
        self.address = (str(server.address[0]), int(server.address[1]))
        threading.Thread(target=self._serve, name="smddp-compute-service", daemon=True).start()

    def close(self) -> None:
        """Takes no further clients."""
        self._server.stop_event.set()

    def _serve(self) -> None:
        with contextlib.suppress(SystemExit):  # how a manager's server ends
            self._server.serve_forever()


class ComputeClient:
    """Talks to a `ComputeService`.

    Args:
        compute_addresses: host and port of the service.
        key: bytes, its key.
        verbose: accepted for compatibility with Horovod; has no effect.
        timeout: seconds that the waiting functions wait unless they are given another number. Defaults to 60.

    Raises:
        ConnectionError: no server answers there, or one with another key.
        TimeoutError: the server accepts connections and does not answer.
    """

    def __init__(self, compute_addresses: tuple[str, int], key: bytes, verbose: int = 1, timeout: float = 60) -> None:
        del verbose
        host, port = self._address = (compute_addresses[0], compute_addresses[1])
        self._timeout = timeout
        try:
            self._registry = self._answer(lambda: _connect(host, port, key))
        except TimeoutError:
            raise
        except (OSError, EOFError, AuthenticationError) as error:
            raise ConnectionError(
                f"No compute service with this key answers at {host}:{port} ({type(error).__name__}: {error}). Is the "
                "compute job running? A configuration file of an earlier job must be removed before the jobs start."
            ) from error

    def register_dispatcher(self, dispatcher_id: int, dispatcher_address: str) -> None:
        """Registers a dispatcher at "host:port"."""
        self._answer(lambda: self._registry.add_dispatcher(dispatcher_id, dispatcher_address))

    def wait_for_dispatcher_registration(self, dispatcher_id: int, timeout: float | None = None) -> str:
        """Returns the address of a dispatcher as soon as it is registered; TimeoutError when it is not."""
        failure = f"Dispatcher {dispatcher_id} was not started"
        return str(self._wait(lambda: self._registry.dispatcher(dispatcher_id), failure, timeout))

    def register_worker_for_dispatcher(self, dispatcher_id: int, worker_id: int) -> None:
        """Registers a worker of a dispatcher."""
        self._answer(lambda: self._registry.add_worker(dispatcher_id, worker_id))

    def wait_for_dispatcher_worker_registration(self, dispatcher_id: int, timeout: float | None = None) -> None:
        """Waits until a dispatcher has all its workers; TimeoutError when some are missing."""
        failure = f"Dispatcher {dispatcher_id} did not get all its workers"
        self._wait(lambda: self._registry.has_workers(dispatcher_id), failure, timeout)

    def shutdown(self) -> None:
        """Releases all callers of `wait_for_shutdown`."""
        self._answer(lambda: self._registry.end())

    def wait_for_shutdown(self) -> None:
        """Waits for `shutdown`, as long as it takes, or until the service has gone: its host closes the connection.

        A host that is silent may be busy, or the network down for a while: then it is asked again.
        """
        over = False
        while not over:
            try:
                over = self._answer(lambda: self._registry.is_over())
            except TimeoutError:
                pass
            except (EOFError, ConnectionError):
                over = True

    def _wait(self, ask: Callable[[], Any], failure: str, timeout: float | None) -> Any:
        timeout = self._timeout if timeout is None else timeout
        give_up_at = time.monotonic() + timeout
        while True:
            answer = self._answer(ask)
            if answer:
                return answer
            if time.monotonic() > give_up_at:
                raise TimeoutError(f"{failure} within {timeout} s. Is the compute job running?")

    def _answer(self, ask: Callable[[], Any]) -> Any:
        """Returns the answer of the service. Asks in a thread, because a connection to a lost host reports no error."""
        answer: Future[Any] = Future()

        def in_thread() -> None:
            try:
                answer.set_result(ask())
            except BaseException as error:
                answer.set_exception(error)

        threading.Thread(target=in_thread, name="smddp-compute-client", daemon=True).start()
        if not wait([answer], _ANSWER_SECONDS).done:
            host, port = self._address
            raise TimeoutError(
                f"The compute service at {host}:{port} has not answered for {_ANSWER_SECONDS:.0f} s. Is the compute "
                "job running, and its host within reach?"
            )
        return answer.result()


def _connect(host: str, port: int, key: bytes) -> Any:
    class Client(BaseManager):
        pass

    Client.register("registry")
    manager: Any = Client((host, port), key)
    manager.connect()
    registry = manager.registry()
    # At the end of a process a proxy tells the server that it goes, and waits for the answer: for ever when the
    # server's own process is already ending. Nothing is kept for it there, so it may go without a word.
    registry._close.cancel()
    return registry


def my_address() -> str:
    """An address of this host that others can reach, as far as name resolution knows one."""
    try:
        return socket.gethostbyname(socket.gethostname())
    except OSError:
        return "127.0.0.1"
