"""PreemptionCheckpoint: a job that gets SIGTERM saves once and ends; started again, it continues."""

from __future__ import annotations

import hashlib
import os
import re
import signal
import sys
import threading
from collections import Counter
from collections.abc import Iterable
from typing import Any

from smddp_tf._warn import warn
from smddp_tf.basics import rank
from smddp_tf.collectives import layouts, objects, rank_facts
from smddp_tf.elastic.commits import commits_in
from smddp_tf.keras._backend import keras, needs_keras_3
from smddp_tf.keras.elastic.states import TensorFlowKerasState
from smddp_tf.keras.roles.optimizers import innermost

# 128 + SIGTERM: what a shell, Kubernetes and Slurm show of a process that SIGTERM has ended.
EXIT_CODE = 143

# The number of trainings that this process has finished, by folder and identity of model and optimizer.
_finished: Counter[tuple[str, str]] = Counter()


class PreemptionCheckpoint(keras.callbacks.Callback):
    """Saves the training when a scheduler takes the machine away (SIGTERM), and continues from there the next time.

    The signal may reach any one rank, or several. At the end of the next batch all ranks agree to stop; rank 0 writes
    model, optimizer and epoch into `directory`, and every rank ends with `exit_code`. What is there is always whole: it
    is written under another name, forced to the disk and renamed. When the script is started again, `fit` takes it over
    on all ranks, from rank 0, and continues at the interrupted epoch, with the weights that it had reached; that
    epoch begins again with its first batch. A training that comes to its end removes what was saved.

    One folder may serve several calls of `fit` in one program, of one model or of several: each call takes over only
    what it saved itself. Calls are told apart by the shapes of the model's weights, the class of the optimizer, and the
    number of trainings with the same ones that the process has finished before. When the program is started again, a
    call that had come to its end trains again. A program that skips such calls must give each call a `name`.

    Launchers differ in how long they wait between SIGTERM and SIGKILL: docs/keras-callbacks.md. A second signal ends
    the process at once. Agreeing costs one very small allreduce in each batch. Give the callback to `fit` on every
    rank, with a model that is built and whose optimizer is wrapped by `hvd.DistributedOptimizer`. Variables that are
    local to a rank are taken over from rank 0 as well.

    Example:

    >>> callbacks = [
    ...     hvd.callbacks.BroadcastGlobalVariablesCallback(0),
    ...     hvd.callbacks.PreemptionCheckpoint("/shared/preempted"),
    ... ]
    >>> model.fit(dataset, epochs=epochs, callbacks=callbacks)

    Args:
        directory: String or path of a folder for this alone, which whichever process is rank 0 the next time can read.
            It is made, for this user only, when it is not there. Or a URL that `fsspec` knows, such as
            "s3://bucket/preempted", which only those may write whom this program trusts.
        signals: The signals to look for. Defaults to `(signal.SIGTERM,)`.
        exit_code: Integer, with which the program ends (`SystemExit`) after saving. `None` lets `fit` return instead,
            after the validation and the callbacks of the epoch, with `preempted` set. Defaults to 143.
        name: String that identifies the training in the folder, made of letters, digits, `_`, `-` and `.`. Defaults to
            what is said above.

    Attributes:
        preempted: True once the training was saved and stopped.

    Raises:
        ImportError: If a URL needs a package that is not installed.
        ValueError: If `fit` runs outside of Python's main thread, where there are no signals, or with a model that is
            not built; if `name` is none; or if `fsspec` does not know the protocol of a URL.
        OSError: On every rank, if rank 0 could not save, or could not read what was saved.
        NotImplementedError: With the legacy Keras 2.
    """

    for_all_ranks = True

    def __init__(
        self, directory: str | os.PathLike[str], signals: Iterable[int] = (signal.SIGTERM,),
        exit_code: int | None = EXIT_CODE, name: str | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        needs_keras_3("PreemptionCheckpoint")
        if name is not None and not re.fullmatch(r"[\w.-]+", str(name)):
            raise ValueError(
                "`name` must be made of letters, digits, '_', '-' and '.', as it is part of a file's name. "
                f"Received: name={name!r}."
            )
        self._name = name
        self._identity = self._prefix = ""
        self.directory = commits_in(directory).path  # refuses a URL that cannot be used
        self.preempted = False
        self._signals = tuple(signals)
        self._exit_code = exit_code
        self._asked = False
        self._epoch = 0
        self._handlers_before: dict[Any, Any] = {}

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        if threading.current_thread() is not threading.main_thread():
            raise ValueError(
                "PreemptionCheckpoint needs signals, which Python gives to its main thread only. Received: a `fit` in "
                f"{threading.current_thread().name}. Call `fit` in the main thread."
            )
        self.preempted = self._asked = False
        self._take_over()
        for number in self._signals:
            self._handlers_before[number] = signal.signal(number, self._on_signal)

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._epoch = epoch

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        self._stop_if_asked(self._epoch)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Also here: a signal may have come during validation."""
        self._stop_if_asked(epoch + 1)

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        self._release_signals()
        if not self.preempted:
            _finished[self.directory, self._identity] += 1
            if rank() == 0:
                self._folder().clear()

    def _on_signal(self, number: int, frame: object) -> None:
        if self._asked:
            self._release_signals()
            signal.raise_signal(number)
            return
        self._asked = True
        text = f"smddp_tf [rank {rank()}]: {signal.Signals(number).name}: training is saved at the end of the batch.\n"
        os.write(sys.stderr.fileno(), text.encode())  # print may be under way

    def _release_signals(self) -> None:
        for number, handler in self._handlers_before.items():
            signal.signal(number, handler)
        self._handlers_before = {}

    def _stop_if_asked(self, epoch: int) -> None:
        if self.preempted or not rank_facts.any_rank(self._asked, "PreemptionCheckpoint (did a signal come)"):
            return
        state = self._state()
        state.epoch, state.preempted = epoch, True
        state.commit(wait=True)
        self.preempted = True
        if self._exit_code is None:
            self.model.stop_training = True
            return
        self._release_signals()
        raise SystemExit(self._exit_code)

    def _take_over(self) -> None:
        self._identity = _identity_of(self.model)
        self._prefix, found, problem = objects.broadcast_object(self._look() if rank() == 0 else None)
        if problem:
            raise OSError(problem)
        if not found:
            return
        state = self._state()
        state.resume()
        state.sync()
        if state.preempted:
            self.model._initial_epoch = state.epoch

    def _look(self) -> Any:
        """On rank 0: how the files of this training begin, whether there are any, and what went wrong."""
        number = _finished[self.directory, self._identity]
        self._prefix = f"{self._name or f'{self._identity}-{number}'}."
        try:
            found = self._folder().newest() > 0
            if not found and (others := self._folder().prefixes()):
                warn(
                    f"PreemptionCheckpoint: {self.directory} holds what was saved of other trainings "
                    f"({', '.join(others)}), and nothing of this one ({self._prefix}), which begins at its start."
                )
            return self._prefix, found, ""
        except OSError as error:
            return self._prefix, False, f"Rank 0 could not look into {self.directory}: {error.strerror or error}"

    def _folder(self) -> Any:
        return commits_in(self.directory, keep=1, prefix=self._prefix)

    def _state(self) -> Any:
        """Holds a copy of all variables: made when it is needed, and not kept."""
        state = TensorFlowKerasState(self.model, epoch=0, preempted=False)
        state.commit_to(self.directory, keep=1, prefix=self._prefix)
        return state


def _identity_of(model: keras.Model) -> str:
    """Returns a hash that is equal for the same training in every process. It has no names: Keras numbers these."""
    weights = [
        (getattr(layouts.layout_of(weight), "full_shape", tuple(weight.shape)), str(weight.dtype), weight.trainable)
        for weight in model.weights
    ]
    optimizers = [type(each).__name__ for each in (model.optimizer, innermost(model.optimizer))]
    return hashlib.sha256(repr((weights, optimizers)).encode()).hexdigest()[:12]
