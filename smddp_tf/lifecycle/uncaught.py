"""An uncaught exception on one rank ends the job at once, and its traceback is printed last.

The other ranks get its text and name it in one line. The errors that follow on the other ranks are printed
without tracebacks, which would hide the relevant one. The order in which the ranks print:
tf_ops/runtime/health/exception_notice.h. Each rank tells smddprun whether the exception was its own
(tf_ops/core/env/launcher.h).
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable
from types import TracebackType

from smddp_tf._native import loader
from smddp_tf.exceptions import reason_of, without_reason

# The longest wait for the other ranks' lines, and for another rank's traceback. They come within milliseconds, unless
# a rank hangs.
_OTHERS_SECONDS = 2.0
_TRACEBACK_SECONDS = 5.0
# Time for the output of the other ranks to pass through the launcher.
_SETTLE_SECONDS = 0.2
_MAX_CHARACTERS = 2000
# The lines that TensorFlow puts before the text of an error in a graph: where the graph was made.
_FRAME = re.compile(r'(\s*)File ".*", line \d+')
_HEADING = re.compile(
    r"Graph execution error:|in user code:|Detected at node .* defined at |<stack traces unavailable>"
)

Hook = Callable[[type[BaseException], BaseException, "TracebackType | None"], object]
_installed: Hook | None = None


def watch() -> None:
    """Installs a hook in front of the one in `sys.excepthook`. Does nothing while it is installed."""
    global _installed
    if sys.excepthook is not _installed:
        _installed = _hook_before(sys.excepthook)
        sys.excepthook = _installed


def _hook_before(show: Hook) -> Hook:
    def hook(kind: type[BaseException], error: BaseException, where: TracebackType | None) -> None:
        core = loader.core()
        if not core.is_initialized() or core.size() == 1:
            if not any(isinstance(each, core.EngineError) for each in _chain(error)):  # a session that failed is over
                core.tell_launcher(True, in_one_line(kind, error))
            show(kind, error, where)
        elif (reason := _reason_in(error)) == "peer_raised":
            core.tell_launcher(False, core.raised_elsewhere())
            core.leave_mpi_unfinished()  # the rank that raised will not come to it
            _wait(core.traceback_printed_elsewhere, _TRACEBACK_SECONDS)
        elif reason == "peer_left":  # it says itself why, and its exit code is the job's
            core.tell_launcher(False, in_one_line(kind, error))
            core.end_last()
            show(kind, error, where)
        elif (failure := core.session_failure()) and reason == failure[0]:
            core.tell_launcher(False, failure[1])
            core.leave_mpi_unfinished()  # all ranks know, as far as they live; one may hang
            show(kind, error, where)
        else:
            sys.stdout.flush()
            line = in_one_line(kind, error)
            core.tell_launcher(True, line)
            core.raise_exception(line)
            _wait(core.others_acknowledged, _OTHERS_SECONDS)
            time.sleep(_SETTLE_SECONDS)
            try:
                show(kind, error, where)
                sys.stderr.flush()
            finally:
                core.tell_traceback_printed()

    return hook


def is_consequence(error: BaseException) -> bool:
    """Whether another rank's end is the reason of an error, or of one of its causes."""
    return _reason_in(error) in ("peer_left", "peer_lost", "peer_raised")


def _reason_in(error: BaseException) -> str | None:
    """The reason of the first error of the engine among `error` and its causes."""
    return next((reason for each in _chain(error) if (reason := reason_of(each))), None)


def _chain(error: BaseException | None) -> list[BaseException]:
    """The error and its causes."""
    found: list[BaseException] = []
    while error is not None and not any(error is each for each in found):
        found.append(error)
        error = error.__cause__ or error.__context__
    return found


def in_one_line(kind: type[BaseException], error: BaseException) -> str:
    """The message of the exception, without the graph locations that TensorFlow puts first."""
    text = " ".join(_without_frames(str(error)) or str(error).split())
    text = f"{kind.__name__}: {without_reason(text)}".rstrip(": .")
    if len(text) <= _MAX_CHARACTERS:
        return text
    half = _MAX_CHARACTERS // 2
    return f"{text[:half]} ... {text[-half:]}"


def _without_frames(text: str) -> list[str]:
    """The words that are left: of a frame goes its line, and the lines below it that are indented more."""
    words: list[str] = []
    deeper = ""  # how the lines that belong to a frame begin
    for line in text.splitlines():
        if frame := _FRAME.match(line):
            deeper = frame[1] + " "
        elif not deeper or not line.startswith(deeper):
            deeper = ""
            words += [] if _HEADING.match(line) else line.split()
    return words


def _wait(until: Callable[[], bool], seconds: float) -> None:
    give_up_at = time.monotonic() + seconds
    while not until() and time.monotonic() < give_up_at:
        time.sleep(0.01)
