"""The processes that start a job's ranks: mpirun, or ours, of which a job that grows has one for each host."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence

from smddp_tf.exceptions import LaunchError
from smddp_tf.link.server import ControlServer
from smddp_tf.run.rank.processes import end_with_parent

OUTPUTS = {100: 0, 101: 1}  # of these processes: kind of frame to stream
_LOOK_SECONDS = 0.02


class Starters:
    """These processes, each in a process group of its own. For one thread. They end with `close`.

    Args:
        environment: theirs.
        server: yields what they print, as frames of the kinds of `OUTPUTS`.
    """

    def __init__(self, environment: Mapping[str, str], server: ControlServer) -> None:
        self._environment, self._server = environment, server
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self, words: Sequence[str]) -> subprocess.Popen[bytes]:
        """Starts one more. Raises LaunchError where it cannot be started."""
        launcher = os.getpid()
        try:
            process = subprocess.Popen(
                words, env=self._environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.PIPE, start_new_session=True,
                preexec_fn=lambda: end_with_parent(signal.SIGTERM, launcher),
            )  # fmt: skip
        except OSError as error:
            raise LaunchError(f"{words[0]} cannot be started: {error.strerror}.") from None
        for kind, pipe in zip(OUTPUTS, filter(None, (process.stdout, process.stderr))):
            self._server.listen_to(pipe.fileno(), kind)
        self._processes.append(process)
        return process

    def poll(self) -> int | None:
        """None while one of them runs; then the first exit code that is not 0, or 0."""
        codes = [process.poll() for process in self._processes]
        return None if None in codes else next(filter(None, codes), 0)

    def signal(self, sign: int) -> None:
        for process in self._processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, sign)

    def close(self, seconds: float) -> None:
        """Ends them: SIGTERM, and `seconds` later SIGKILL."""
        if self.poll() is None:
            self.signal(signal.SIGTERM)
            give_up_at = time.monotonic() + seconds
            while self.poll() is None and time.monotonic() < give_up_at:
                time.sleep(_LOOK_SECONDS)
            if self.poll() is None:
                self.signal(signal.SIGKILL)
        for process in self._processes:
            process.wait()
            for pipe in filter(None, (process.stdout, process.stderr)):
                pipe.close()
