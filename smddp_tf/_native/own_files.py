"""Checks the owner of a file: what is unpickled, or loaded as code, must not be writable by other users."""

from __future__ import annotations

import os
import stat

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def is_own(found: os.stat_result) -> bool:
    """Returns whether it is a file or folder of this user (or root) that no other user may write. False for a link."""
    plain = stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)
    return plain and found.st_uid in (os.geteuid(), 0) and not found.st_mode & _OTHERS_WRITE


def described(found: os.stat_result) -> str:
    """Describes mode and owner of a file, for error texts."""
    return f"mode {stat.filemode(found.st_mode)}, user {found.st_uid}"
