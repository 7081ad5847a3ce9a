"""`smddpcommon`, formerly `herringcommon`: the native module of SMDDP, of which scripts call one function."""

from __future__ import annotations

import os

from smddp_tf import basics
from smddp_tf._warn import warn

__all__ = ["checked_bucket_bytes", "setBucketSize"]

_MULTIPLE = 128


def setBucketSize(bucket_size: int) -> None:
    """Sets the size of a gradient bucket in bytes, for the session that `init` starts next.

    A session that runs keeps its size, with a warning: the ranks have agreed on it. To change it call this before
    `init`, or start the job with `SMDDP_BUCKET_BYTES`. Results do not depend on it.

    Args:
        bucket_size: integer, bytes; a multiple of 128, and the same on all ranks.

    Raises:
        ValueError: It is not a positive multiple of 128.
    """
    size = checked_bucket_bytes(bucket_size, "`bucket_size`", bucket_size)
    if basics.is_initialized():
        warn(
            "The session runs already and keeps its bucket size. "
            f"Set it before `init`, or start the job with SMDDP_BUCKET_BYTES={size}.",
        )
    else:
        os.environ["SMDDP_BUCKET_BYTES"] = str(size)


def checked_bucket_bytes(size: float, what: str, given: object) -> int:
    """Checks the size of a bucket.

    Args:
        size: number of bytes.
        what: the name of the argument or variable, for the error text.
        given: the value that the user has set, for the error text.

    Returns:
        `size` as an integer.

    Raises:
        ValueError: it is not a positive multiple of 128.
    """
    if not size > 0 or size % _MULTIPLE:
        raise ValueError(
            f"{what} must be a positive multiple of {_MULTIPLE} bytes. Received: {given!r}, which is {size:g} bytes."
        )
    return int(size)
