"""Commits at a URL of `fsspec`, such as "s3://bucket/job17"."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from typing import IO, Any

from smddp_tf import urls
from smddp_tf.elastic.disk import CommitFolder, write_content


def commits_in(folder: str | os.PathLike[str], keep: int = 2, prefix: str = "") -> CommitFolder:
    """The commits in a folder of this machine or at a URL; the arguments are those of `CommitFolder`."""
    return (RemoteCommits if urls.is_url(folder) else CommitFolder)(folder, keep, prefix)


class RemoteCommits(CommitFolder):
    """The commits of one job at a URL. One process writes, any may read.

    A commit is written to a file of this machine, which has no name, and uploaded as one object. Where the upload
    breaks off, an object store shows no object; elsewhere the digest shows that it is not whole. Whoever may write
    there can run code here. There are no locks: `write` finds out that another job has written.

    Raises:
        ImportError, ValueError: see `urls.file_system`.
    """

    def __init__(self, path: str | os.PathLike[str], keep: int = 2, prefix: str = "") -> None:
        super().__init__(path, keep, prefix)
        urls.file_system(self.path)

    def hold(self) -> None:
        """Does nothing."""

    def _store(self, name: str, content: tuple[Any, ...]) -> None:
        with tempfile.TemporaryFile() as file:
            write_content(file, content)
            urls.upload(_path_of(file), f"{self.path}/{name}")

    @contextmanager
    def _opened(self, name: str) -> Iterator[BufferedReader]:
        with tempfile.TemporaryFile() as copy:
            urls.download(f"{self.path}/{name}", _path_of(copy))
            with open(_path_of(copy), "rb") as file:
                yield file

    def _remove(self, name: str) -> None:
        urls.remove(f"{self.path}/{name}")


def _path_of(file: IO[bytes]) -> str:
    """Under which this process can open a file without a name again."""
    return f"/proc/self/fd/{file.fileno()}"
