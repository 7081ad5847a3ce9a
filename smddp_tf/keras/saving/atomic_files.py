"""Saves models completely or not at all: the old file stays until the new one is on the disk."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tensorflow as tf

from smddp_tf import urls
from smddp_tf.lifecycle.slow import told_if_slow

_UNFINISHED = ".unfinished-"


@contextmanager
def saving_atomically(callback: tf.keras.callbacks.ModelCheckpoint, model: tf.keras.Model) -> Iterator[None]:
    """Within it, `callback`, which saves `model`, replaces files instead of writing into them."""
    callback.set_model(_AtomicSaves(model))
    try:
        yield
    finally:
        callback.set_model(model)


def is_for_fsspec(path: str | os.PathLike[str]) -> bool:
    """Whether it is a URL that TensorFlow, and so Keras, does not read and write itself."""
    return urls.is_url(path) and str(path).partition("://")[0] not in tf.io.gfile.get_registered_schemes()


@contextmanager
def saving_to_url(callback: tf.keras.callbacks.ModelCheckpoint) -> Iterator[None]:
    """Within it, `callback`, whose `filepath` is a URL, saves to this machine; what it has saved is uploaded after."""
    url = callback.filepath
    if not is_for_fsspec(url):
        yield
        return
    protocol, _, name = url.partition("://")
    with urls.temporary_folder() as folder:
        callback.filepath = os.path.join(folder, name)
        try:
            yield
        finally:
            callback.filepath = url
        for file in (each for each in Path(folder).rglob("*") if each.is_file()):
            urls.upload(str(file), f"{protocol}://{file.relative_to(folder).as_posix()}")


class _AtomicSaves:
    """The model, whose files are replaced when they are complete."""

    def __init__(self, model: tf.keras.Model) -> None:
        self._model = model

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def save(self, filepath: str | os.PathLike[str], *args: Any, **kwargs: Any) -> None:
        with told_if_slow(f"saving {filepath}"):
            _replace(filepath, lambda path: self._model.save(path, *args, **kwargs))

    def save_weights(self, filepath: str | os.PathLike[str], *args: Any, **kwargs: Any) -> None:
        with told_if_slow(f"saving {filepath}"):
            _replace(filepath, lambda path: self._model.save_weights(path, *args, **kwargs))


def _replace(filepath: str | os.PathLike[str], write: Callable[[str], None]) -> None:
    """Calls `write` to make a file of that name in a temporary folder next to it, which then replaces the old file.

    A symbolic link of that name is replaced too, and not followed. Temporary files of killed processes are removed.
    """
    path = os.fspath(filepath)
    if "://" in path:  # what TensorFlow writes itself, such as gs://: object stores replace complete objects
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
