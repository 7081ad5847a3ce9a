"""Models are saved whole or not at all: what was there before stays until the new file is on the disk."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

_UNFINISHED = ".unfinished-"


@contextmanager
def saving_whole_files(callback: Any, model: Any) -> Iterator[None]:
    """Within it, `callback`, which saves `model`, replaces files instead of writing into them."""
    callback.set_model(_SavesWholeFiles(model))
    try:
        yield
    finally:
        callback.set_model(model)


class _SavesWholeFiles:
    """The model, but for how it is saved."""

    def __init__(self, model: Any) -> None:
        self._model = model

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def save(self, filepath: Any, *args: Any, **kwargs: Any) -> None:
        _replace(filepath, lambda path: self._model.save(path, *args, **kwargs))

    def save_weights(self, filepath: Any, *args: Any, **kwargs: Any) -> None:
        _replace(filepath, lambda path: self._model.save_weights(path, *args, **kwargs))


def _replace(filepath: str | os.PathLike[str], write: Callable[[str], None]) -> None:
    """Lets `write` make a file of that name in a folder of its own beside it, which then takes its place.

    A symbolic link in its place is replaced too, and not followed. What a process that was killed has left is removed.
    """
    path = os.fspath(filepath)
    if "://" in path:  # no file of this machine; object stores replace things whole by themselves
        write(path)
        return
    folder, name = os.path.split(os.path.abspath(path))
    own = os.path.join(folder, _UNFINISHED + name)
    try:
        shutil.rmtree(own, ignore_errors=True)
        os.mkdir(own, 0o700)
        write(os.path.join(own, name))
        _force_to_disk(os.path.join(own, name))
        os.replace(os.path.join(own, name), path)
        _force_to_disk(folder)
    except (OSError, RuntimeError) as error:  # h5py raises both
        raise OSError(
            f"The model could not be saved to '{path}': {error}. What was there before is unchanged. Expected: a "
            "folder that exists and has room for the new file beside the old one."
        ) from error
    finally:
        shutil.rmtree(own, ignore_errors=True)


def _force_to_disk(path: str) -> None:
    file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)
