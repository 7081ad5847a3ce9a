"""The users' settings for the reduction of gradients, as one value that a tape or an optimizer forwards."""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from smddp_tf._warn import warn
from smddp_tf.collectives import reduce_op, sparse
from smddp_tf.compression import Compression
from smddp_tf.process_sets import ProcessSet, global_process_set


class ReduceOptions(NamedTuple):
    """The settings of a tape or an optimizer. Plain values, so that a pickled optimizer can carry them.

    Their names and defaults are those of `smddp_tf.keras.DistributedOptimizer`, which says what they mean. A tape has
    some of them; the others keep their defaults there.
    """

    name: str | None = None
    device_dense: str = ""
    device_sparse: str = ""
    compression: Any = Compression.none
    sparse_as_dense: bool = False
    gradient_predivide_factor: float = 1.0
    op: int = reduce_op.Average
    backward_passes_per_step: int = 1
    average_aggregated_gradients: bool = False
    process_set: ProcessSet = global_process_set
    scale_local_gradients: bool = True
    partition_state: str | int | None = None

    @classmethod
    def of(cls, arguments: Mapping[str, Any]) -> ReduceOptions:
        """Returns the options among the arguments of a public function.

        Args:
            arguments: by name. `groups` and `num_groups` are checked; what is neither is left alone.

        Raises:
            ValueError: `groups` or `backward_passes_per_step` is not what it must be.
        """
        check_groups(arguments.get("groups"), arguments.get("num_groups", 0))
        options = cls(**{name: arguments[name] for name in cls._fields if name in arguments})
        state = partition_state_of(options.partition_state, arguments.get("shard"))
        return options._replace(partition_state=state).checked()

    def checked(self) -> ReduceOptions:
        """Returns the same options, with plain numbers. What a `GradientReducer` takes is checked there.

        Raises:
            ValueError: `backward_passes_per_step` is not a positive integer.
        """
        passes = self.backward_passes_per_step
        if isinstance(passes, bool) or not hasattr(passes, "__index__") or passes < 1:
            raise ValueError(
                "`backward_passes_per_step` must be an integer of at least 1. "
                f"Received: backward_passes_per_step={passes!r}."
            )
        return self._replace(
            backward_passes_per_step=operator.index(passes),
            average_aggregated_gradients=bool(self.average_aggregated_gradients),
            scale_local_gradients=bool(self.scale_local_gradients),
        )

    def dense(self, grads: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        """Returns `grads` as dense tensors, which is what can be added up over several passes.

        Raises:
            ValueError: There are `tf.IndexedSlices`, and `sparse_as_dense` was not asked for.
        """
        dense = list(grads)
        for index, (grad, variable) in enumerate(zip(grads, variables)):
            if isinstance(grad, tf.IndexedSlices):
                if not self.sparse_as_dense:
                    raise ValueError(
                        "`backward_passes_per_step` adds up gradients, so they must be dense. Received: "
                        f"backward_passes_per_step={self.backward_passes_per_step} and tf.IndexedSlices for variable "
                        f"{getattr(variable, 'path', variable.name)!r}. Give `sparse_as_dense=True` to "
                        "hvd.DistributedOptimizer."
                    )
                dense[index] = sparse.densified(grad, tf.TensorShape(variable.shape))
        return dense


DEFAULTS = ReduceOptions()


def partition_state_of(partition_state: str | int | None, shard: str | int | None) -> str | int | None:
    """Returns `partition_state`, which may have been given by its older name `shard`; of that it warns."""
    if shard is None:
        return partition_state
    warn("`shard` of an optimizer is called `partition_state` now: write that.", DeprecationWarning)
    return shard


def check_groups(groups: Any, num_groups: int = 0) -> None:
    """Checks Horovod's `groups`, which gradients to reduce together: raises what Horovod raises.

    Horovod fuses whatever happens to be ready, so its users group gradients to make that the same in every run. Here
    the buckets follow from the list of gradients alone, and are the same in every run and on every rank.

    Args:
        groups: a positive number of groups, a list of lists of variables, or None.
        num_groups: the deprecated name for the number; 0 for none.

    Raises:
        ValueError: `groups` is none of these.
    """
    if num_groups != 0:
        warn("`num_groups` is deprecated: write `groups`.", DeprecationWarning)
        groups = num_groups if groups is None else groups
    if groups is None or _is_positive_number(groups) or _is_list_of_lists_of_variables(groups):
        return
    raise ValueError(
        f"`groups` must be a positive integer or a list of lists of variables. Received: groups={groups!r}. "
        "Leave it out: buckets are the same in every run without it."
    )


def _is_positive_number(groups: Any) -> bool:
    with contextlib.suppress(TypeError):
        return not isinstance(groups, bool) and operator.index(groups) > 0
    return False


def _is_list_of_lists_of_variables(groups: object) -> bool:
    return isinstance(groups, Sequence) and all(
        isinstance(group, Sequence) and all(hasattr(variable, "assign") for variable in group) for group in groups
    )
