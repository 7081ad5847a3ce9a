"""The calls and steps that run on this thread, for code that Keras calls, which no argument can reach.

Keras, and the user's `train_step`, lie between a `fit` and what is called inside of it: the constructor of an iterator,
a loss, a metric, a layer, an optimizer's `apply`, a variable's value that is saved. None of these takes an argument of
ours, and a step is traced once for many `fit`s, of models that may share layers and optimizers: so neither the model
nor the optimizer can say in which step it is being traced. TensorFlow traces on the thread that calls, so a
thread-local tells.

Nothing else of smddp_tf.keras that `fit` needs is kept by thread, but Keras's own distribution, which
`current_distribution.py` keeps for it.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any


class _OfThread(threading.local):
    """The state of this thread; changed by `within` only.

    Attributes:
        plans: the `TrainerPlan`s of the calls of `fit` and `evaluate` under way, the outermost first.
        is_alone: whether a callback runs that concerns this rank only; see `current_distribution.alone`.
        active: the `ActiveRanks` of the step that is being traced, or run eagerly; None: all ranks are active.
        batch: the `GlobalBatch` or `OwnBatch` of that step; None outside of the steps that `StepHooks` has put in.
        is_compiled_loss: whether Keras computes the loss of `compile` in it.
        partition_of: `partition_of(layer, name, shape)` says into how many parts a weight is divided that is made now;
            see `partitioned_weights.py`.
        saved_variables: on rank 0, while all ranks save sharded variables together: what gathers the full value of
            each, by its id; see `sharded_variables.py`.
    """

    plans: tuple[Any, ...] = ()
    is_alone: bool = False
    active: Any = None
    batch: Any = None
    is_compiled_loss: bool = False
    partition_of: Any = None
    saved_variables: Any = None


here = _OfThread()


@contextlib.contextmanager
def within(**changes: Any) -> Iterator[None]:
    """Inside, on this thread, `here` has these attributes."""
    before = {name: getattr(here, name) for name in changes}
    vars(here).update(changes)
    try:
        yield
    finally:
        vars(here).update(before)
