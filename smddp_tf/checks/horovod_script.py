"""Runs a script that imports Horovod for three steps of `fit`, and compares the weights of the ranks."""

from __future__ import annotations

import faulthandler
import importlib
import inspect
import runpy
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from smddp_tf import aliases
from smddp_tf.objects import allgather_object

STEPS, _LIMIT_S = 3, 600


class _Done(BaseException):
    """Ends the script, whatever it catches."""


def difference(command: Sequence[str], reduces: bool) -> float | None:
    """The largest difference between a weight on two ranks after three steps; None if `fit` makes fewer.

    After ten minutes the script is ended, and its stacks are shown.

    Args:
        command: script and arguments.
        reduces: False leaves the optimizers as they are, as Horovod does under Keras 3: it replaces methods that Keras
            3 never calls. All else that the script asks of Horovod is done by smddp_tf.
    """
    aliases.install("horovod")
    hvd_keras = importlib.import_module("smddp_tf.keras")
    hvd_keras._backend.needs_keras_3("smddprun --doctor with a script for Horovod")
    if not reduces:
        for module in ("smddp_tf", "smddp_tf.keras", "smddp_tf.horovod.keras"):
            vars(importlib.import_module(module))["DistributedOptimizer"] = lambda optimizer, *_, **__: optimizer
    patches, table = (importlib.import_module(f"smddp_tf.keras.{name}") for name in ("patches", "patch_table"))
    patches.replace(table.FIT, _ending_early)
    sys.argv, sys.path[:0] = list(command), [str(command[0]).rpartition("/")[0] or "."]
    faulthandler.dump_traceback_later(_LIMIT_S, exit=True)
    try:
        runpy.run_path(command[0], run_name="__main__")
    except _Done as done:
        return float(done.args[0])
    finally:
        faulthandler.cancel_dump_traceback_later()
    return None


def _ending_early(plain_fit: Any) -> Any:
    keras = importlib.import_module("keras")

    class Steps(keras.callbacks.Callback):  # type: ignore[name-defined]
        seen = 0

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self.seen += 1
            if self.seen == STEPS:
                ranks = allgather_object([np.asarray(weight, np.float64) for weight in self.model.get_weights()])
                raise _Done(max(np.abs(a - b).max() for other in ranks for a, b in zip(ranks[0], other) if a.size))

    def fit(self: Any, *args: Any, **kwargs: Any) -> Any:
        bound = inspect.signature(plain_fit).bind(self, *args, **kwargs)
        bound.arguments["callbacks"] = [*(bound.arguments.get("callbacks") or ()), Steps()]
        return plain_fit(*bound.args, **bound.kwargs)

    return fit
