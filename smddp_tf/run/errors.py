"""The launcher's exceptions."""

from __future__ import annotations

__all__ = ["LaunchError", "NotStarted"]


class LaunchError(RuntimeError):
    """A job cannot be started, or did not start. The text says why and what to do."""


class NotStarted(LaunchError):
    """Not all ranks were in time.

    Args:
        message: what to say.
        hosts: those that did not report.
    """

    def __init__(self, message: str, hosts: tuple[str, ...]) -> None:
        super().__init__(message)
        self.hosts = hosts
