"""Commits: every file is complete, and the newest complete one is found. Needs no TensorFlow.

They are in a folder, or at a URL of `fsspec`, such as "s3://bucket/job17". In a folder a commit is written under
another name, forced to the disk, and renamed. It begins with a digest of the rest. No file is ever opened through a
symbolic link, and a file that is read must belong to this user (or root) and not be writable by others, because it is
unpickled.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import fcntl
import hashlib
import os
import pickle
import re
import socket
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from io import BufferedReader
from typing import IO, Any

import cloudpickle

from smddp_tf import urls
from smddp_tf._native.own_files import described, is_own
from smddp_tf.lifecycle import restart_settings, slow

_MAGIC = b"smddp_tf commit 1\n"
_DIGEST_BYTES = 32
_HEADER_BYTES = len(_MAGIC) + _DIGEST_BYTES
_NAME = re.compile(r"(.*)commit-(\d{12})")
_UNFINISHED = ".commit-unfinished"
_ADVICE = "Give each a folder (commit_to, smddprun --commit-dir) or a prefix of its own."
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

# The time that an earlier job may take to end.
_LOCK_SECONDS = 10.0
# Lock files that this process has open, by folder and prefix. The system frees them with the process. At its end, and
# when the commits are cleared, their names are removed (not where a signal kills it; such a file does no harm).
# Only who has locked a file removes its name, and who has locked one makes sure that the name is still that file's:
# another process may have removed it since it was opened, and a third one may have locked the next file of that name.
# The process ids tell those that a fork has from its parent, which holds them.
_held: dict[tuple[str, str], tuple[int, IO[str]]] = {}


def commits_in(folder: str | os.PathLike[str], keep: int = 2, prefix: str = "") -> CommitFolder:
    """The commits in a folder of this machine or at a URL; the arguments are those of `CommitFolder`."""
    return (RemoteCommits if urls.is_url(folder) else CommitFolder)(folder, keep, prefix)


class CommitFolder:
    """The commits of one job in one folder. One process writes, any may read.

    Args:
        path: of the folder; it is made, for this user alone, when the first commit is written.
        keep: how many commits stay. Defaults to 2.
        prefix: the beginning of the names of the files. Commits with other ones in the same folder are no concern of
            this object. Defaults to none.
    """

    def __init__(self, path: str | os.PathLike[str], keep: int = 2, prefix: str = "") -> None:
        if keep < 1:
            raise ValueError(f"`keep` must be 1 or more. Received: {keep}.")
        self.path = urls.absolute(path)
        self.keep = keep
        self.prefix = prefix
        self._lock_path = os.path.join(self.path, f".{prefix}lock")
        self._written = 0  # the number of the last commit, if this object has written it
        self._writer = ThreadPoolExecutor(1, "hvd.elastic commit")  # the interpreter's end waits for its work
        self._begun: Future[Any] | None = None

    def newest(self) -> int:
        """Returns the number of the newest commit, complete or not; 0 when there is none."""
        return max(self._numbers(), default=0)

    def begin(self, write: Callable[[], Any], wait: bool = False) -> None:
        """Has a thread write the next commit, after the one that was begun before.

        Args:
            write: writes it, by `self.write`. Nobody changes any more what it writes.
            wait: return when it is on the disk. Defaults to False.

        Raises:
            OSError: it, or without `wait` the one before, could not be written; the commits before are untouched.
        """
        self.finish()
        self._begun = self._writer.submit(write)
        if wait:
            self.finish()

    def finish(self) -> None:
        """Waits until the commit that was begun last is on the disk; raises what `begin` does."""
        begun, self._begun = self._begun, None
        if begun is not None:
            with slow.told_if_slow(f"writing a commit to {urls.shown(self.path)}"):
                begun.result()

    def write(self, *content: Any) -> int:
        """Writes the next commit and removes those that are not kept. Returns its number once it is on the disk.

        Args:
            content: what `cloudpickle` can pickle, or the bytes of a pickle, one thing after another; an iterator for
                things that are made when their turn comes, and not kept.

        Raises:
            OSError: it could not be written, or another job writes here; the commits before are untouched.
        """
        self.hold()
        number = self.newest() + 1
        if self._written and number != self._written + 1:
            raise OSError(
                f"Another job, or another state, writes commits to {self.path}: {number - 1} is there, this one has "
                f"written {self._written} last. {_ADVICE}"
            )
        self._store(self._name(number), content)
        for old in sorted(self._numbers())[: -self.keep]:
            self._remove(self._name(old))
        self._written = number
        return number

    def hold(self) -> None:
        """Makes this the only job that writes commits with this prefix to the folder, until this process ends.

        Raises:
            OSError: another job holds the folder. It is given some seconds to end.
        """
        job, give_up_at = restart_settings.job_of(os.environ), time.monotonic() + _LOCK_SECONDS
        process, held = _held.get((self.path, self.prefix), (os.getpid(), None))
        if process != os.getpid() or (held and self._is_locked(held)):
            return
        _held.pop((self.path, self.prefix), None)
        file = held or self._opened_lock()
        while not self._is_locked(file):
            file.seek(0)
            owner = "" if _locked(file) else file.read()  # "": the name is another file's by now
            if job and owner.endswith(f"job {job}"):  # a rank that is lost, or of the start before
                break
            file.close()  # before it is opened again: closing frees every lock of this process on the file
            if time.monotonic() > give_up_at:
                raise OSError(f"{self.path} is in use: {owner or 'another process'} writes commits there. {_ADVICE}")
            time.sleep(0.1)
            file = self._opened_lock()
        file.seek(0)
        file.truncate()
        print(f"process {os.getpid()} on {socket.gethostname()}, job {job}", end="", file=file, flush=True)
        _held[self.path, self.prefix] = os.getpid(), file

    def release(self) -> None:
        """Undoes `hold`."""
        process, file = _held.pop((self.path, self.prefix), (0, None))
        if file and process == os.getpid():
            with file, contextlib.suppress(OSError):  # the folder is gone, or not writable any more
                if self._is_locked(file):
                    os.unlink(self._lock_path)

    def read(self) -> tuple[int, Any]:
        """Returns the number and the first object of the newest complete commit; (0, None) when there is none."""
        found = self.read_each()
        return next(found, 0), next(found, None)

    def read_each(self) -> Iterator[Any]:
        """Yields the number of the newest complete commit, and all its content; nothing when there is none.

        Raises:
            PermissionError: another user could have written it.
        """
        for number in sorted(self._numbers(), reverse=True):
            with self._opened(self._name(number)) as file:
                if _is_whole(file):
                    file.seek(_HEADER_BYTES)
                    yield number
                    while file.peek(1):
                        yield pickle.load(file)
                    return
            print(
                f"smddp_tf.elastic: {urls.shown(self.path)}/{self._name(number)} is damaged; the one before is used",
                file=sys.stderr,
            )

    def clear(self) -> None:
        """Removes all commits. The folder stays, and another job may write there."""
        for number in self._numbers():
            self._remove(self._name(number))
        self._written = 0
        self.release()

    def prefixes(self) -> list[str]:
        """With which prefixes there are commits in the folder."""
        return sorted({match[1] for name in urls.names_in(self.path) if (match := _NAME.fullmatch(name))})

    def _opened_lock(self) -> IO[str]:
        os.makedirs(self.path, mode=0o700, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        with self._folder() as folder:
            number = os.open(os.path.basename(self._lock_path), flags, 0o600, dir_fd=folder)
        file = open(number, "r+", encoding="utf-8")  # noqa: SIM115
        _check_owner(file, self._lock_path)
        return file

    def _is_locked(self, file: IO[str]) -> bool:
        """Locks the file, unless another process has, or the lock file was replaced or removed meanwhile."""
        with contextlib.suppress(FileNotFoundError):
            return _locked(file) and os.path.samestat(os.fstat(file.fileno()), os.lstat(self._lock_path))
        return False

    def _name(self, number: int) -> str:
        return f"{self.prefix}commit-{number:012d}"

    def _numbers(self) -> list[int]:
        found = (_NAME.fullmatch(name) for name in urls.names_in(self.path))
        return [int(match[2]) for match in found if match and match[1] == self.prefix]

    def _store(self, name: str, content: tuple[Any, ...]) -> None:
        os.makedirs(self.path, mode=0o700, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with self._folder() as folder:
            _remove(folder, _UNFINISHED)  # of a process that was killed
            try:
                with open(os.open(_UNFINISHED, flags, 0o600, dir_fd=folder), "wb") as file:
                    _write_content(file, content)
                    os.fsync(file.fileno())
                os.rename(_UNFINISHED, name, src_dir_fd=folder, dst_dir_fd=folder)
            finally:
                _remove(folder, _UNFINISHED)  # where it was not renamed
            os.fsync(folder)

    @contextmanager
    def _opened(self, name: str) -> Iterator[BufferedReader]:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with self._folder() as folder, open(os.open(name, flags, dir_fd=folder), "rb") as file:
            _check_owner(file, os.path.join(self.path, name))
            yield file

    def _remove(self, name: str) -> None:
        with self._folder() as folder:
            _remove(folder, name)

    @contextmanager
    def _folder(self) -> Iterator[int]:
        folder = os.open(self.path, _FOLDER_FLAGS)
        try:
            yield folder
        finally:
            os.close(folder)


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
            _write_content(file, content)
            urls.upload(_path_of(file), f"{self.path}/{name}")

    @contextmanager
    def _opened(self, name: str) -> Iterator[BufferedReader]:
        with tempfile.TemporaryFile() as copy:
            urls.download(f"{self.path}/{name}", _path_of(copy))
            with open(_path_of(copy), "rb") as file:
                yield file

    def _remove(self, name: str) -> None:
        urls.remove(f"{self.path}/{name}")


def _write_content(file: IO[bytes], content: tuple[Any, ...]) -> None:
    """Writes a complete commit, with its digest, to an empty file."""
    file.write(_MAGIC + bytes(_DIGEST_BYTES))
    writer = _Digesting(file)
    for each in content:
        for thing in each if isinstance(each, Iterator) else (each,):
            if isinstance(thing, bytes):  # pickled already
                writer.write(thing)
            else:
                cloudpickle.dump(thing, writer, protocol=pickle.HIGHEST_PROTOCOL)
    file.seek(len(_MAGIC))
    file.write(writer.digest.digest())
    file.flush()


class _Digesting:
    """A file to pickle into, which keeps the digest of what it is given."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self.digest = file, hashlib.sha256()

    def write(self, data: bytes | bytearray | memoryview) -> int:
        self.digest.update(data)
        return self._file.write(data)


def _remove(folder: int, name: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)


def _locked(file: IO[str]) -> bool:
    """Locks it; true where the file system has no locks, too."""
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno not in (errno.EACCES, errno.EAGAIN)
    return True


def _check_owner(file: IO[Any], path: str) -> None:
    found = os.fstat(file.fileno())
    if stat.S_ISREG(found.st_mode) and is_own(found):
        return
    raise PermissionError(
        f"{path} is not used: a commit must be a plain file that belongs to this user and that nobody else may write, "
        f"because reading it runs what is in it. Found: {described(found)}."
    )


def _path_of(file: IO[bytes]) -> str:
    """Under which this process can open a file without a name again."""
    return f"/proc/self/fd/{file.fileno()}"


def _is_whole(file: IO[bytes]) -> bool:
    header = file.read(_HEADER_BYTES)
    digest = hashlib.sha256()
    while chunk := file.read(1 << 20):
        digest.update(chunk)
    return header == _MAGIC + digest.digest()


@atexit.register
def _release_all() -> None:
    for path, prefix in list(_held):
        CommitFolder(path, prefix=prefix).release()
