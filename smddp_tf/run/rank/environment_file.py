"""A container's environment for the ranks that ssh starts in it, which do not inherit it.

In a file that only the user can read, because it may contain credentials and tokens.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
from collections.abc import Mapping

from smddp_tf.exceptions import LaunchError

FILE = "SMDDP_RUN_ENVIRONMENT"  # names the file to the ranks
_STAY = ("HOSTNAME", "PWD", "OLDPWD", "SHLVL", "_")


def path_for(user: int) -> str:
    """Where the file of this user is, on every host."""
    return f"/tmp/smddprun-{user}/environment"


def hand_on(environment: Mapping[str, str], path: str) -> None:
    """Writes the file, in a folder that only this user can enter.

    Raises:
        LaunchError: the folder's name is taken by another user.
    """
    folder = os.path.dirname(path)
    with contextlib.suppress(FileExistsError):
        os.mkdir(folder, 0o700)
    found = os.lstat(folder)
    if not stat.S_ISDIR(found.st_mode) or not _is_ours_alone(found):
        raise LaunchError(f"{folder} must be a folder that belongs to this user, with mode 700. Remove it.")
    variables = {name: value for name, value in environment.items() if name not in _STAY}
    part = f"{path}.{os.getpid()}"
    file = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with open(file, "w", encoding="utf-8") as text:
        json.dump(variables, text)
    os.replace(part, path)


def take_over(environment: Mapping[str, str]) -> dict[str, str]:
    """A rank's environment: this one, completed by the file that FILE names, if there is one.

    Raises:
        LaunchError: other users can access the file.
    """
    own = {name: value for name, value in environment.items() if name != FILE}
    path = environment.get(FILE, "")
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC) if path else None
    except FileNotFoundError:  # this is the host that started the job
        file = None
    if file is None:
        return own
    with open(file, encoding="utf-8") as text:
        if not _is_ours_alone(os.fstat(text.fileno())):
            raise LaunchError(f"{path} is accessible to other users; it is not used.")
        return {**json.load(text), **own}


def _is_ours_alone(found: os.stat_result) -> bool:
    return found.st_uid == os.geteuid() and not found.st_mode & 0o077
