"""Where the parts of a tf.data service find each other: dispatchers, their workers, and the trainers.

One small server, run by rank 0 of the compute job, keeps a dictionary: the numbers of dispatchers and of the workers of
each; an address by `("dispatcher", D)`; an entry `("worker", D, W)` for each worker; and "over" at the end. It is a
manager of Python's `multiprocessing`, whose connections are authenticated with a key.
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
from multiprocessing.managers import BaseManager, DictProxy
from typing import Any

_PAUSE_SECONDS, _LONG_PAUSE_SECONDS = 0.1, 1.0  # until a client asks again: for what is being started, for the end
_ANSWER_SECONDS = 30.0  # a service that does not answer for so long is gone, with its host or the network to it


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
        registry = {"dispatchers": dispatchers, "workers": workers_per_dispatcher}

        class Server(BaseManager):
            pass

        Server.register("registry", callable=lambda: registry, proxytype=DictProxy)
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
            self._registry: Any = self._answer(lambda: _connect(host, port, key))
        except TimeoutError:
            raise
        except (OSError, EOFError, AuthenticationError) as error:
            raise ConnectionError(
                f"No compute service with this key answers at {host}:{port} ({type(error).__name__}: {error}). Is the "
                "compute job running? A configuration file of an earlier job must be removed before the jobs start."
            ) from error

    def register_dispatcher(self, dispatcher_id: int, dispatcher_address: str) -> None:
        """Registers a dispatcher at "host:port"."""
        key = self._checked("dispatcher", dispatcher_id)
        known = self._answer(lambda: self._registry.setdefault(key, dispatcher_address))
        if known != dispatcher_address:
            raise ValueError(
                f"Dispatcher {dispatcher_id} is registered already, at {known}. Received: {dispatcher_address}. Start "
                "each dispatcher once."
            )

    def wait_for_dispatcher_registration(self, dispatcher_id: int, timeout: float | None = None) -> str:
        """Returns the address of a dispatcher as soon as it is registered; TimeoutError when it is not."""
        key, failure = self._checked("dispatcher", dispatcher_id), f"Dispatcher {dispatcher_id} was not started"
        return str(self._wait(lambda: self._registry.get(key), failure, timeout))

    def register_worker_for_dispatcher(self, dispatcher_id: int, worker_id: int) -> None:
        """Registers a worker of a dispatcher."""
        worker = {(*self._checked("worker", dispatcher_id), worker_id): True}
        self._answer(lambda: self._registry.update(worker))

    def wait_for_dispatcher_worker_registration(self, dispatcher_id: int, timeout: float | None = None) -> None:
        """Waits until a dispatcher has all its workers; TimeoutError when some are missing."""
        mine = self._checked("worker", dispatcher_id)

        def has_all() -> bool:
            registered: dict[Any, Any] = self._registry.copy()
            return bool(sum(key[:2] == mine for key in registered) >= registered["workers"])

        self._wait(has_all, f"Dispatcher {dispatcher_id} did not get all its workers", timeout)

    def shutdown(self) -> None:
        """Releases all callers of `wait_for_shutdown`."""
        self._answer(lambda: self._registry.update(over=True))

    def wait_for_shutdown(self) -> None:
        """Waits for `shutdown`, as long as it takes, or until the service has gone: its host closes the connection.

        A host that is silent may be busy, or the network down for a while: then it is asked again.
        """
        over = False
        with contextlib.suppress(EOFError, ConnectionError):
            while not over:
                time.sleep(_LONG_PAUSE_SECONDS)
                with contextlib.suppress(TimeoutError):
                    over = self._answer(lambda: self._registry.get("over"))

    def _checked(self, kind: str, dispatcher: int) -> tuple[str, int]:
        """The key of an entry for a dispatcher."""
        count = self._answer(lambda: self._registry["dispatchers"])
        if not 0 <= dispatcher < count:
            raise ValueError(f"The service has {count} dispatchers, counted from 0. Received: dispatcher {dispatcher}.")
        return kind, dispatcher

    def _wait(self, ask: Callable[[], Any], failure: str, timeout: float | None) -> Any:
        timeout = self._timeout if timeout is None else timeout
        give_up_at = time.monotonic() + timeout
        while not (answer := self._answer(ask)):
            if time.monotonic() > give_up_at:
                raise TimeoutError(f"{failure} within {timeout} s. Is the compute job running?")
            time.sleep(_PAUSE_SECONDS)
        return answer

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

    Client.register("registry", proxytype=DictProxy)
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
