"""plan_batch: divides a global batch into each rank's batches, passes and steps."""

from __future__ import annotations

import numbers
from dataclasses import dataclass

from smddp_tf._warn import warn
from smddp_tf.data.agreement import RankAndSize, agree, rank_and_size


@dataclass(frozen=True)
class BatchPlan:
    """The result of `hvd.plan_batch`; `print` shows it."""

    ranks: int
    batch_size: int  # samples of a rank in a pass, by which to batch the dataset
    passes: int  # of an update, for `backward_passes_per_step`
    global_batch: int  # samples of an update: the product of these
    steps_per_epoch: int | None  # as `fit` counts them, passes; None without `samples`
    remainder: int | None  # samples of an epoch that fill no update; None without `samples`
    tokens: int | None  # of an update; None without `tokens`
    notes: tuple[str, ...]  # what differs from what was asked, or exceeds the token budget

    def __str__(self) -> str:
        lines = [f"{self.ranks} rank(s) x {self.batch_size} samples x {self.passes} pass(es) = {self.global_batch}"]
        if self.steps_per_epoch is not None:
            lines.append(f"{self.steps_per_epoch} steps an epoch, {self.remainder} samples left over")
        lines += [f"{self.tokens} tokens an update"] if self.tokens is not None else []
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])


def plan_batch(
    *,
    global_batch: int | None = None,
    per_rank: int | None = None,
    samples: int | None = None,
    tokens: int | None = None,
    largest_per_rank: int | None = None,
    token_budget: int = 4 * 2**20,
    size: int | None = None,
) -> BatchPlan:
    """Divides a batch among the ranks and, where their memory is too small for it, into passes.

    Call it on all ranks with the same arguments, after `hvd.init()`; or with `size`, to plan for other ranks. What
    ranks and passes do not divide is rounded down, which is a note of the plan and a warning, as are too many tokens.

    Example:
    >>> print(hvd.plan_batch(global_batch=4096, samples=1_281_167, largest_per_rank=16, size=64))
    64 rank(s) x 16 samples x 4 pass(es) = 4096
    1248 steps an epoch, 3215 samples left over

    Args:
        global_batch: int, samples of an update, of all ranks and passes. Either this or `per_rank`.
        per_rank: int, samples of an update on each rank, in all its passes.
        samples: int, those of an epoch, on all ranks. Defaults to `None`, unknown.
        tokens: int, those of a sample: the length of its sequence. Defaults to `None`.
        largest_per_rank: int, samples that a rank has memory for. Defaults to `None`, no limit: one pass.
        token_budget: int, tokens of an update above which to warn. Defaults to 4 Mi, of the SageMaker guide
            (https://docs.aws.amazon.com/sagemaker/latest/dg/model-parallel-best-practices-v2.html).
        size: int, the number of ranks; no rank communicates then. Defaults to `None`, those of the job.

    Returns:
        The `BatchPlan`, the same on all ranks.

    Raises:
        ValueError: an argument has no meaning, or the ranks have passed different ones. Raised on every rank.
    """
    options = {name: value for name, value in locals().items() if value is not None}
    who = rank_and_size(None, None) if size is None else RankAndSize(0, size, False)
    agree(who, options, False, None, "`plan_batch`")
    if any(not isinstance(value, numbers.Integral) or value < 1 for value in options.values()):
        raise ValueError(f"All arguments must be whole numbers, 1 or more. Received: {options}.")
    if (global_batch is None) == (per_rank is None):
        raise ValueError(f"Pass either `global_batch` or `per_rank`. Received: {options}.")
    plan = _plan_of(who.size, options)
    for note in plan.notes if who.rank == 0 else ():
        warn(f"plan_batch: {note}")
    return plan


def _plan_of(ranks: int, options: dict[str, int]) -> BatchPlan:
    requested = options.get("global_batch", options.get("per_rank", 0) * ranks)
    samples = requested // ranks
    if samples < 1:
        raise ValueError(f"`global_batch` must be {ranks} or more, a sample for each rank. Received: {requested}.")
    passes = -(-samples // options.get("largest_per_rank", samples))
    batch_size = samples // passes
    actual, notes = ranks * passes * batch_size, []
    if actual != requested:
        notes.append(f"{ranks} ranks x {passes} passes do not divide {requested}: an update has {actual} samples.")
    updates, rest = divmod(options["samples"], actual) if "samples" in options else (None, None)
    if updates == 0:
        notes.append(f"an epoch of {options['samples']} samples is no whole update. Use a smaller batch.")
    tokens = actual * options["tokens"] if "tokens" in options else None
    if tokens is not None and tokens > options["token_budget"]:
        many = f"an update has {tokens} tokens, more than the budget of {options['token_budget']}, and may not converge"
        notes.append(f"{many}. Use a smaller batch, or set `token_budget`.")
    steps = None if updates is None else updates * passes
    return BatchPlan(ranks, batch_size, passes, actual, steps, rest, tokens, tuple(notes))
