"""The exceptions of `horovod.common.exceptions`, under the names that scripts catch. Needs no TensorFlow."""

from __future__ import annotations

__all__ = [
    "HorovodInternalError",
    "HorovodVersionMismatchError",
    "HostsUpdatedInterrupt",
    "get_version_mismatch_message",
]


class HorovodInternalError(RuntimeError):
    """The ranks have lost each other. `elastic.run` goes back to the last commit and starts a new session."""


class HostsUpdatedInterrupt(RuntimeError):
    """The set of hosts has changed. `elastic.run` starts a new session and goes on from the present state.

    Args:
        skip_sync: bool, nothing new has to be told to the ranks that remain, so that `state.sync()` is left out.
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


def get_version_mismatch_message(name: str, version: str, installed_version: str) -> str:
    """The text of a `HorovodVersionMismatchError`."""
    return (
        f"{name} is of version {version}, but this library was built for version {installed_version}. Build it again "
        "for the version in use (pip install --no-cache-dir)."
    )
