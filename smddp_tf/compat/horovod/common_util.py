"""`horovod.common.util`: the few helpers of it that scripts use. Needs no TensorFlow."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from smddp_tf.basics import ccl_built, cuda_built, ddl_built, gloo_built, mpi_built, nccl_built, rocm_built
from smddp_tf.collectives.reduce_op import ReduceOp, resolve_average

__all__ = [
    "ccl_built", "cuda_built", "ddl_built", "env", "extension_available",
    "get_average_backwards_compatibility_fun", "gloo_built", "is_iterable", "is_version_greater_equal_than",
    "mpi_built", "nccl_built", "num_rank_is_power_2", "rocm_built", "split_list",
    "support_non_legacy_keras_optimizers",
]  # fmt: skip


def extension_available(ext_base_name: str, verbose: bool = False) -> bool:
    """Returns whether this library supports a framework.

    Args:
        ext_base_name: such as "tensorflow" or "torch".
        verbose: accepted for compatibility with Horovod; has no effect.

    Returns:
        True for "tensorflow" and "keras".
    """
    return ext_base_name in ("tensorflow", "keras")


def get_average_backwards_compatibility_fun(reduce_ops: object) -> Callable[[int | None, bool | None], ReduceOp]:
    """Makes the function that merges `op` and the deprecated `average`.

    Args:
        reduce_ops: an object with the numbers of the reductions, which are always the same.

    Returns:
        `handle_average_backwards_compatibility(op, average)` of `horovod.tensorflow`.
    """
    return resolve_average


def support_non_legacy_keras_optimizers(keras: object) -> bool:
    """Returns whether optimizers of Keras 3, and both kinds of Keras 2, can be wrapped.

    Args:
        keras: the module; has no effect.

    Returns:
        True.
    """
    return True


def is_iterable(x: Any) -> bool:
    """Returns whether an object can be iterated.

    Args:
        x: any object.

    Returns:
        bool.
    """
    with contextlib.suppress(TypeError):
        iter(x)
        return True
    return False


def is_version_greater_equal_than(ver: str, target: str) -> bool:
    """Compares the first three numbers of two versions.

    Args:
        ver: string, such as "2.16.1".
        target: string with three parts.

    Returns:
        True where `ver` is `target` or newer.

    Raises:
        ValueError: one of them is no string, or `target` has not three parts.
    """
    if not isinstance(ver, str) or not isinstance(target, str) or target.count(".") != 2:
        raise ValueError(
            f"`ver` and `target` must be strings such as 2.16.1. Received: ver={ver!r}, target={target!r}."
        )
    first, second = ([int(number) for number in re.findall(r"\d+", text)[:3]] for text in (ver, target))
    return first >= second


def num_rank_is_power_2(num_rank: int) -> bool:
    """Returns whether a number is a power of 2.

    Args:
        num_rank: integer.

    Returns:
        True for 1, 2, 4, 8, ...
    """
    return num_rank > 0 and num_rank & (num_rank - 1) == 0


def split_list(l: Sequence[Any], n: int) -> list[Sequence[Any]]:  # noqa: E741
    """Splits a list into consecutive parts.

    Args:
        l: a list or another sequence.
        n: integer, the number of parts.

    Returns:
        `n` slices of `l` in order, whose lengths differ by at most one.
    """
    size, rest = divmod(len(l), n)
    ends = [(part + 1) * size + min(part + 1, rest) for part in range(n)]
    return [l[begin:end] for begin, end in zip([0, *ends], ends)]


@contextlib.contextmanager
def env(**kwargs: str | None) -> Iterator[None]:
    """A context that sets environment variables, and restores them at its end.

    Args:
        kwargs: strings by the names of the variables; a None does not change its variable.

    Yields:
        None.
    """
    changes = {name: value for name, value in kwargs.items() if value is not None}
    before = {name: os.environ[name] for name in changes if name in os.environ}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name in changes:
            os.environ.pop(name, None)
        os.environ.update(before)
