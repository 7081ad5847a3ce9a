"""Paths of this machine, and URLs of what `fsspec` reaches, such as "s3://bucket/folder". Needs no TensorFlow.

A URL's file system is not asked to rename: a file is written here, whole, and then uploaded. Object stores show an
object when all of it has come.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib
import os
import posixpath
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_TEMPORARY = "smddp_tf-"  # what the names of temporary folders begin with
_UNLOCKED_SECONDS = 60.0  # a folder may be this old before its process has locked it


def is_url(path: str | os.PathLike[str]) -> bool:
    """Whether it names something by a protocol; "file://" is a path of this machine."""
    return "://" in os.fspath(path) and not os.fspath(path).startswith("file://")


_USER = re.compile(r"(://)[^/\s]*@")
_SECRET = re.compile(r"([?&;][\w.-]*(?:token|secret|password|key|sig|signature|credential)=)[^&;\s'\"]*", re.IGNORECASE)


def shown(text: object) -> str:
    """The text for messages: its URLs without names, passwords and keys."""
    return _SECRET.sub(r"\1***", _USER.sub(r"\1***@", str(text)))


def absolute(path: str | os.PathLike[str]) -> str:
    """The absolute path; a URL as it is, without a slash at its end."""
    text = os.fspath(path)
    return text.rstrip("/") if is_url(text) else os.path.abspath(os.path.expanduser(text.removeprefix("file://")))


def file_system(url: str) -> tuple[Any, str]:
    """Returns the `fsspec` file system of a URL, and the path in it.

    Raises:
        ImportError: fsspec, or what it needs for the protocol, is not installed.
        ValueError: it does not know the protocol.
    """
    try:
        return importlib.import_module("fsspec").core.url_to_fs(url)  # type: ignore[no-any-return]
    except ImportError as error:
        raise ImportError(
            f"{shown(url)} needs fsspec and its driver for {url.partition('://')[0]}://, which are not installed "
            f"({shown(error)}). Install them on all hosts; for S3: pip install 'smddp-tf[remote]'."
        ) from _unless_secret(error)
    except ValueError as error:
        raise ValueError(
            f"Expected a path or a URL that fsspec knows. Received: {shown(url)!r} ({shown(error)})."
        ) from _unless_secret(error)


def _unless_secret(error: Exception) -> Exception | None:
    """As the cause of another exception, whose traceback shows its text."""
    return error if shown(error) == str(error) else None


def names_in(folder: str) -> list[str]:
    """The names of the files in a folder; none where there is no such folder.

    Raises:
        OSError: it cannot be read.
    """
    try:
        if not is_url(folder):
            return os.listdir(folder)
        with _reached(folder) as (files, path):
            files.invalidate_cache()
            return [posixpath.basename(name) for name in files.ls(path, detail=False)]
    except FileNotFoundError:
        return []


def upload(file: str, url: str) -> None:
    """Copies a file of this machine to a URL. Raises OSError."""
    with _reached(url) as (files, path):
        files.put_file(file, path)


def remove(url: str) -> None:
    """Removes a file. Raises OSError."""
    with _reached(url) as (files, path):
        files.rm_file(path)


def download(url: str, file: str) -> None:
    """Copies what is at a URL to a file of this machine. Raises OSError."""
    with _reached(url) as (files, path):
        files.get_file(path, file)


@contextmanager
def downloaded(url: str) -> Iterator[str]:
    """Inside, the path of a copy on this machine, with the same name. Raises OSError."""
    with temporary_folder() as folder:
        copy = os.path.join(folder, posixpath.basename(url))
        download(url, copy)
        yield copy


@contextmanager
def temporary_folder() -> Iterator[str]:
    """Inside, an empty folder; it is locked, so that those of processes that were killed are known, and are removed."""
    with contextlib.suppress(OSError):
        _remove_leftovers(tempfile.gettempdir())
    with tempfile.TemporaryDirectory(prefix=_TEMPORARY) as folder:
        lock = os.open(folder, os.O_RDONLY)
        with contextlib.suppress(OSError):  # of file systems without locks
            fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            yield folder
        finally:
            os.close(lock)


def _remove_leftovers(where: str) -> None:
    for name in filter(re.compile(_TEMPORARY + r"\w{8}").fullmatch, os.listdir(where)):
        with contextlib.suppress(OSError):  # locked: in use
            folder = os.open(os.path.join(where, name), os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                found = os.fstat(folder)
                if found.st_uid == os.geteuid() and found.st_mtime < time.time() - _UNLOCKED_SECONDS:
                    fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(os.path.join(where, name))
            finally:
                os.close(folder)


@contextmanager
def _reached(url: str) -> Iterator[tuple[Any, str]]:
    """Inside, `file_system`; drivers raise what their libraries do, such as botocore's errors of the network."""
    files, path = file_system(url)
    try:
        yield files, path
    except FileNotFoundError as error:
        raise FileNotFoundError(shown(f"{url}: {error}")) from _unless_secret(error)
    except Exception as error:
        raise OSError(shown(f"{url}: {type(error).__name__}: {error}")) from _unless_secret(error)
