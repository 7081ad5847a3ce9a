"""What the callbacks of a `fit` say about it, on one rank and on all of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from smddp_tf.basics import rank
from smddp_tf.keras._backend import keras
from smddp_tf.keras.fit.stopping import mentions

# These write the learning rate into the logs, under the name that Keras 3 has for it.
_WRITE_RATE = ("LearningRateScheduler", "ReduceLROnPlateau", "TensorBoard")
# What is named in the code of callbacks that set the learning rate or the weights.
_SET_STATE = frozenset({"assign", "learning_rate", "load_weights", "lr", "set_weights", "_swap_variables"})


class CallbackFacts(NamedTuple):
    """Of one rank's callbacks, or, after `agreed`, of any rank's.

    Attributes:
        for_all_ranks: the names of those of ours that belong on all ranks or on none.
        counts_samples: whether one weighs by samples.
        broadcasts: whether one gives all ranks the same weights.
        restores_weights: whether one may go back to the weights of another epoch.
        write_rate: whether one of Keras's writes the learning rate into the logs.
        set_state: how many may set the learning rate or weights. After `agreed`, whether the ranks differ in that.
    """

    for_all_ranks: Sequence[str]
    counts_samples: bool
    broadcasts: bool
    restores_weights: bool
    write_rate: bool
    set_state: int


def flat(callbacks: Any) -> list[Any]:
    """The callbacks given to `fit`, in whatever form."""
    if isinstance(callbacks, keras.callbacks.CallbackList):
        return list(callbacks.callbacks)
    return list(keras.tree.flatten(callbacks or []))


def facts_of(callbacks: Sequence[Any]) -> CallbackFacts:
    """The facts of this rank."""
    writers = tuple(getattr(keras.callbacks, name) for name in _WRITE_RATE)
    return CallbackFacts(
        [_name_of(each) for each in callbacks if getattr(each, "for_all_ranks", False)],
        any(counts_samples(each) for each in callbacks),
        any("Broadcast" in type(each).__name__ for each in callbacks),
        any(getattr(each, "restore_best_weights", False) for each in callbacks),
        any(isinstance(each, writers) for each in callbacks),
        sum(not hasattr(each, "for_all_ranks") and mentions(each, _SET_STATE) for each in callbacks),
    )


def agreed(of_ranks: Sequence[CallbackFacts]) -> CallbackFacts:
    """What holds for all ranks.

    Raises:
        ValueError: a callback that talks to the other ranks, or changes what ranks must have alike, is missing on some.
    """
    names = [facts.for_all_ranks for facts in of_ranks]
    for name in sorted({name for of_rank in names for name in of_rank}):
        counts = [of_rank.count(name) for of_rank in names]
        if min(counts) < max(counts):
            holders = [other for other, count in enumerate(counts) if count == max(counts)]
            raise ValueError(
                f"`fit` needs {name} on all ranks or on none. Received: it on rank(s) {holders} only "
                f"(this is rank {rank()}). Put it into the list of callbacks without asking for the rank. "
                "On rank 0 only belong callbacks that write files or print."
            )
    differ = len({facts.set_state for facts in of_ranks}) > 1
    any_of = CallbackFacts(names[0], *(any(fact) for fact in zip(*(facts[1:] for facts in of_ranks))))
    return any_of._replace(set_state=differ)


def counts_samples(callback: Any) -> bool:
    """Does it weigh by samples?"""
    return getattr(callback, "counts_samples", False)


def name_learning_rate(callbacks: Iterable[Any], as_keras: bool) -> None:
    """Lets ours write the rate under the name that Keras's callbacks use in the same `fit`, or else under Horovod's."""
    for callback in callbacks:
        if hasattr(callback, "rate_name"):
            callback.rate_name = "learning_rate" if as_keras else "lr"


def _name_of(callback: Any) -> str:
    return getattr(callback, "name_of_wrapped", type(callback).__name__)
