"""Paths of this machine, and URLs of what `fsspec` reaches, such as "s3://bucket/folder". Needs no TensorFlow.

A URL's file system is not asked to rename: a file is written here, whole, and then uploaded. Object stores show an
object when all of it has come.
"""

from __future__ import annotations

import importlib
import os
import posixpath
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


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
    """What `fsspec` has for a URL, and the path there.

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


@contextmanager
def downloaded(url: str) -> Iterator[str]:
    """Inside, the path of a copy on this machine, with the same name. Raises OSError."""
    with tempfile.TemporaryDirectory() as folder:
        with _reached(url) as (files, path):
            copy = os.path.join(folder, posixpath.basename(path))
            files.get_file(path, copy)
        yield copy


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
