"""`smdistributed.dataparallel.exceptions`: what launchers look for by name. Needs no TensorFlow."""

__all__ = ["SMDDPAlreadyInitializedError", "SMDDPError"]


class SMDDPError(RuntimeError):
    """The base of the errors that only this package raises; the engine's own errors are those of `smddp_tf`."""


class SMDDPAlreadyInitializedError(SMDDPError, ValueError):
    """`init` was called a second time."""
