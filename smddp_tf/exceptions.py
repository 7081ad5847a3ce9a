"""The exceptions of `horovod.common.exceptions`, under the names that scripts catch, and the launcher's.

Needs no TensorFlow.
"""

from __future__ import annotations

import re

__all__ = [
    "HorovodInternalError",
    "HorovodVersionMismatchError",
    "HostsUpdatedInterrupt",
    "get_version_mismatch_message",
    "reason_of",
    "without_reason",
]

# TensorFlow passes on only the kind of an engine's error, which others use too, and its text.
_TAG = re.compile(r" ?\[smddp:(\w+)\]")


class HorovodInternalError(RuntimeError):
    """The session is lost. `elastic.run` goes back to the last commit and starts a new session."""


class HostsUpdatedInterrupt(RuntimeError):
    """The set of hosts has changed. `elastic.run` starts a new session and continues from the present state.

    Args:
        skip_sync: bool, the ranks that remain need no new values, so that `state.sync()` is left out.
            Defaults to `False`.
    """

    def __init__(self, skip_sync: bool = False) -> None:
        super().__init__()
        self.skip_sync = skip_sync


class HorovodVersionMismatchError(ImportError):
    """A library was built for another version of a framework than the one that is installed.

    Args:
        name: the framework.
        version: the version that is in use.
        installed_version: the version that the library was built for.
    """

    def __init__(self, name: str, version: str, installed_version: str) -> None:
        super().__init__(get_version_mismatch_message(name, version, installed_version))
        self.name = name
        self.version = version
        self.installed_version = installed_version


class LaunchError(RuntimeError):
    """A job cannot be started, or did not start. The text says why and what to do."""


def get_version_mismatch_message(name: str, version: str, installed_version: str) -> str:
    """Returns the text of a `HorovodVersionMismatchError`.

    Args:
        name: the name of the package.
        version: the version in use.
        installed_version: the version for which this library was built.

    Returns:
        A string.
    """
    return (
        f"{name} is of version {version}, but this library was built for version {installed_version}. Build it again "
        "for the version in use (pip install --no-cache-dir)."
    )


def reason_of(error: BaseException) -> str | None:
    """Returns the reason why the engine refused or ended a request.

    Args:
        error: an exception of a collective, of NumPy arrays or of TensorFlow tensors.

    Returns:
        One of "bad_argument", "bad_state", "disagreement", "tensors_differ", "peer_left", "peer_raised", "peer_lost",
        "transport_failed", "timed_out", "step_given_up", "shut_down", "no_resources", "unsupported", "data_loss" and
        "internal" (docs/errors.md says what each means). `None`: the error is not one of the engine, or one of a wrong
        argument that was found before any rank was asked.
    """
    reason = getattr(error, "reason", None)
    if isinstance(reason, str) and type(error).__name__ == "EngineError":
        return reason
    tag = _TAG.search(str(error))
    return tag[1] if tag else None


def without_reason(text: str) -> str:
    """Removes the tag with the reason from the message of an error.

    Args:
        text: string, the message.

    Returns:
        A string.
    """
    return _TAG.sub("", text)
