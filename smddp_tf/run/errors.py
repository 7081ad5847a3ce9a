"""The launcher's exceptions."""

from __future__ import annotations

from smddp_tf.lifecycle.placement import LaunchError as LaunchError


class NotStarted(LaunchError):
    """Not all ranks were in time.

    Args:
        message: what to say.
        hosts: those that did not report.
    """

    def __init__(self, message: str, hosts: tuple[str, ...]) -> None:
        super().__init__(message)
        self.hosts = hosts
