"""The error of a job that a launcher cannot start or has started wrongly."""

from __future__ import annotations


class LaunchError(RuntimeError):
    """A job cannot be started, or did not start. The text says why and what to do."""
