"""Checks before data are sharded that the ranks agree on rank numbers and data, and gives them one seed."""

from __future__ import annotations

import random
from typing import Any, NamedTuple

from smddp_tf import basics
from smddp_tf._native.threads import of_thread
from smddp_tf.collectives.objects import allgather_object


class RankAndSize(NamedTuple):
    """This rank's number and the number of ranks. `is_real`: those of the job, whose ranks can communicate."""

    rank: int
    size: int
    is_real: bool


def rank_and_size(rank: int | None, size: int | None) -> RankAndSize:
    """Returns the caller's numbers, or those of the job."""
    if rank is None and size is None:
        return RankAndSize(basics.rank(), basics.size(), True)
    if rank is None or size is None or not 0 <= rank < size:
        raise ValueError(
            "`rank` and `size` must be given together, with 0 <= rank < size. "
            f"Received: rank={rank!r}, size={size!r}. Leave both out to take the ranks of the job."
        )
    return RankAndSize(rank, size, False)


def agree(
    who: RankAndSize, what: dict[str, Any], shuffled: bool, seed: int | None, asks: str = "`shard`", advice: str = ""
) -> int | None:
    """Returns the seed that all ranks use, rank 0's; None without shuffling.

    Args:
        what: what must be the same on all ranks, such as the number of samples; name to value.
        asks: the function that takes this rank's shard of the data, for the error text.
        advice: what else to do, for the error text.

    Raises:
        ValueError: the ranks differ in `what`. Raised on every rank.
    """
    if not who.is_real and shuffled and seed is None and who.size > 1:
        raise ValueError("Shuffling with `rank` and `size` given needs a `seed` too, because the ranks are not asked.")
    if shuffled and seed is None:
        seed = random.SystemRandom().getrandbits(32)  # not the generator that the user may have seeded
    if who.is_real and who.size > 1:
        answers = allgather_object((what, seed), name=of_thread("data.shard"))
        _check_same([facts for facts, _ in answers], who.rank, asks, advice)
        seed = answers[0][1]
    return seed if shuffled else None


def _check_same(rank_facts: list[dict[str, Any]], rank: int, asks: str, advice: str) -> None:
    for other, facts in enumerate(rank_facts):
        for name, value in rank_facts[0].items():
            if facts.get(name) != value:
                raise ValueError(
                    f"{asks} needs the same data and arguments on all ranks. "
                    f"Received: {name}={value!r} on rank 0 and {name}={facts.get(name)!r} on rank {other} "
                    f"(this is rank {rank}). Pass the same, and the whole, on every rank; {asks} divides it. {advice}"
                )
