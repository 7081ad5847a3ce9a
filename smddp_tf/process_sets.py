"""Process sets: subsets of the ranks with their own collectives."""

from __future__ import annotations

import contextlib
import contextvars
import functools
import inspect
import operator
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, Union, cast

from smddp_tf._native import loader

if TYPE_CHECKING:
    from mpi4py import MPI

    RanksOrComm = Union[Iterable[int], MPI.Comm]

__all__ = [
    "ProcessSet", "add_process_set", "get_process_set_ids_and_ranks", "global_process_set",
    "is_process_set_included", "process_set_ids", "remove_process_set",
]  # fmt: skip


def is_communicator(value: object) -> bool:
    """True for one of mpi4py."""
    mpi = sys.modules.get("mpi4py.MPI")
    return mpi is not None and isinstance(value, mpi.Comm)


def _sorted_ranks(ranks: Any) -> list[int]:
    try:
        result = sorted(operator.index(rank) for rank in ranks)
    except TypeError:
        raise ValueError(
            "A process set is made of ranks or of an mpi4py communicator. "
            f"Received: {ranks!r} (of type {type(ranks).__name__})."
        ) from None
    if not result or result[0] < 0 or len(set(result)) != len(result):
        raise ValueError(f"A process set needs at least one rank, each once, counted from 0. Received: {ranks!r}.")
    return result


class ProcessSet:
    """Ranks that run collectives together. Pass it to `init(process_sets=[...])` or `add_process_set`.

    Ranks are always those of `hvd.rank()`: also a `root_rank` inside a set. Only `rank()` counts inside the set.

    Example:
    >>> evens = hvd.ProcessSet(range(0, hvd.size(), 2))
    >>> if hvd.size() > 1:  # all ranks are a set already: hvd.global_process_set
    ...     hvd.add_process_set(evens)
    ...     if evens.included():
    ...         mean = hvd.allreduce(x, process_set=evens)

    Args:
        ranks_or_comm: the ranks, in any order; or an mpi4py communicator, whose members are the set, in its order.

    Attributes:
        process_set_id: integer, the same on all ranks; None while the set is not in use.
        ranks: list of ranks, in the order of their numbers inside the set. For a communicator None before the set is
            in use.
        mpi_comm: the communicator the set was made of, or None.
    """

    def __init__(self, ranks_or_comm: RanksOrComm) -> None:
        self.process_set_id: int | None = None
        self.mpi_comm: Any = None
        self._ranks: list[int] | None = None
        if is_communicator(ranks_or_comm):
            self.mpi_comm = ranks_or_comm
        else:
            self._ranks = _sorted_ranks(ranks_or_comm)

    @property
    def ranks(self) -> list[int] | None:
        """The ranks of the set, in its order."""
        if self.process_set_id == 0:
            return list(range(loader.core().size())) if loader.core().is_initialized() else []
        return self._ranks

    def size(self) -> int | None:
        """Returns the number of ranks of the set; None while it is not in use."""
        return len(self.ranks or []) if self._in_use() else None

    def rank(self) -> int | None:
        """My number inside the set; None while it is not in use.

        Raises:
            ValueError: this process is not in the set.
        """
        return _index_in(self.ranks or [], self.process_set_id) if self._in_use() else None

    def included(self) -> bool | None:
        """True when this process is in the set; None while it is not in use."""
        return loader.core().rank() in (self.ranks or []) if self._in_use() else None

    def __deepcopy__(self, memo: object) -> ProcessSet:
        """The set itself: a copy would not be in use, and would not learn of its end."""
        return self

    def _in_use(self) -> bool:
        return self.process_set_id is not None and loader.core().is_initialized()

    def __str__(self) -> str:
        return f"ProcessSet(process_set_id={self.process_set_id}, ranks={self.ranks}, mpi_comm={self.mpi_comm})"

    __repr__ = __str__

    def __reduce__(self) -> Any:
        return "global_process_set" if self.process_set_id == 0 else super().__reduce__()


# Sets with a number, except the global one. `shutdown` takes the numbers back.
_in_use: list[ProcessSet] = []

global_process_set = ProcessSet([0])
"""All ranks."""
global_process_set.process_set_id = 0


def add_process_set(process_set: ProcessSet | RanksOrComm) -> ProcessSet:
    """Makes a process set usable while the program runs. All ranks call it together, also those outside the set.

    Needs `init(process_sets="dynamic")` or `HOROVOD_DYNAMIC_PROCESS_SETS=1`.

    Args:
        process_set: a `ProcessSet`, or what one is made of. The same ranks on all ranks; of communicators each rank
            passes its own, and every different one becomes a set.

    Returns:
        The `ProcessSet`, with its number.

    Raises:
        ValueError: there is such a set already; a rank that does not exist; sets may not be added; the ranks passed
            different lists.
    """
    if not isinstance(process_set, ProcessSet):
        process_set = ProcessSet(process_set)
    add_sets([process_set], at_start=False)
    return process_set


def remove_process_set(process_set: ProcessSet) -> bool:
    """Ends a process set. All ranks call it together. Its unfinished operations end with an error.

    Args:
        process_set: a set in use, given to `init` or to `add_process_set` before. Sets can only be removed where they
            can be added.

    Returns:
        True; False for `global_process_set` and for a set that is not in use.
    """
    number = process_set.process_set_id
    if number is None or number == 0 or not loader.core().remove_process_set(number):
        return False
    for other in [one for one in _in_use if one.process_set_id == number]:
        other.process_set_id = None
        _in_use.remove(other)
    return True


def get_process_set_ids_and_ranks() -> dict[int, list[int]]:
    """The ranks of every process set in use, by its number."""
    return dict(loader.core().process_sets())


def process_set_ids() -> list[int]:
    """The numbers of the process sets in use; 0 is the global one."""
    return sorted(get_process_set_ids_and_ranks())


def is_process_set_included(process_set_id: int = 0) -> bool:
    """Returns whether this process is in a process set.

    Args:
        process_set_id: integer, the number of the set. Defaults to 0, all ranks.

    Returns:
        bool.

    Raises:
        ValueError: there is no such set.
    """
    return loader.core().rank() in ranks_of(process_set_id)


# --- for the rest of the package: the set that an operation is about ---

# Not an argument of every helper: what names, emits and scales an operation asks for it here.
_scope: contextvars.ContextVar[int] = contextvars.ContextVar("smddp_tf.process_set", default=0)

Function = TypeVar("Function", bound=Callable[..., Any])


def checked(process_set: object) -> ProcessSet:
    """Returns `process_set`; raises TypeError when it is not a `ProcessSet`."""
    if isinstance(process_set, ProcessSet):
        return process_set
    raise TypeError(
        "`process_set` must be an `hvd.ProcessSet`. "
        f"Received: process_set={process_set!r} (of type {type(process_set).__name__})."
    )


def id_of(process_set: Any) -> int:
    """Returns the number of a set in use, for an op, which checks when it runs that this process is a member.

    Raises ValueError before `init`, and for a set that is not in use, or no longer, or not in this session.
    """
    number = checked(process_set).process_set_id
    if number is None:
        raise ValueError(
            f"`process_set` is not in use: {process_set}. Give it to `hvd.init(process_sets=[...])` or "
            "`hvd.add_process_set` first; `hvd.shutdown` and `hvd.remove_process_set` end it."
        )
    ranks_of(number)  # a copy of a set keeps the number of one that was removed
    return number


@contextlib.contextmanager
def scope(process_set_id: int) -> Iterator[None]:
    """Inside, what is emitted concerns the set with that number."""
    token = _scope.set(process_set_id)
    try:
        yield
    finally:
        _scope.reset(token)


def with_defaults_of(function: Callable[..., Any], wrapper: Function) -> Function:
    """Returns `wrapper` with the defaults of `function`, where programs read and change them.

    The wrapper takes any arguments; before it calls `function` it must give its defaults back to it (`renew_defaults`).
    """
    wrapper.__defaults__ = function.__defaults__
    wrapper.__kwdefaults__ = function.__kwdefaults__
    return wrapper


def renew_defaults(function: Callable[..., Any], wrapper: Callable[..., Any]) -> None:
    """Gives `function` the defaults that a program has put into `wrapper.__defaults__`, if it has."""
    if function.__defaults__ is not wrapper.__defaults__:
        function.__defaults__ = wrapper.__defaults__


def scoped(function: Function) -> Function:
    """Runs `function` in the scope of its argument `process_set`: all a new collective needs to know of sets."""
    parameters = list(inspect.signature(function).parameters)
    position = parameters.index("process_set")
    from_the_end = position - len(parameters)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        renew_defaults(function, shown)
        default = shown.__defaults__[from_the_end] if shown.__defaults__ else global_process_set
        given = args[position] if len(args) > position else kwargs.get("process_set", default)
        with scope(id_of(given)):
            return function(*args, **kwargs)

    shown: Callable[..., Any] = with_defaults_of(function, call)
    return cast(Function, shown)


def scoped_as_op(gradient: Function) -> Function:
    """Runs `gradient`, the gradient of an op, in the scope of the op's process set."""

    @functools.wraps(gradient)
    def call(op: Any, *grads: Any) -> Any:
        with scope(op.get_attr("process_set")):
            return gradient(op, *grads)

    return cast(Function, call)


def current() -> int:
    """Returns the number of the current set: the one that an operation made here concerns."""
    return _scope.get()


def current_size() -> int:
    """Returns the number of ranks of the current set; raises ValueError before `init`, or when the set was removed."""
    return len(ranks_of(current()))


def current_rank() -> int:
    """Returns this rank's number in the current set; raises ValueError when it is not a member."""
    return _index_in(ranks_of(current()), current())


def ranks_of(process_set_id: int) -> Sequence[int]:
    """The ranks of a set; raises ValueError before `init`, or when there is no such set."""
    if process_set_id == 0:
        return range(loader.core().size())
    sets = get_process_set_ids_and_ranks()
    if process_set_id not in sets:
        raise ValueError(f"There is no process set {process_set_id}. In use: {sorted(sets)}.")
    return sets[process_set_id]


def _index_in(ranks: Sequence[int], number: int | None) -> int:
    """This process's index in `ranks`, those of the process set with that number."""
    rank = loader.core().rank()
    if rank in ranks:
        return ranks.index(rank)
    raise ValueError(
        f"Rank {rank} is not a member of the provided process set: process set {number} has the ranks {list(ranks)}. "
        "Ask `process_set.included()` first."
    )


def forget_all() -> None:
    """For `shutdown`: no set has a number any more but the global one."""
    for process_set in _in_use:
        process_set.process_set_id = None
    _in_use.clear()


# Called after `init` and whenever sets have been added.
after_change: list[Callable[[], None]] = []


def add_sets(process_sets: Sequence[ProcessSet], at_start: bool) -> None:
    """Makes process sets usable. Collective, also where there are none.

    Args:
        process_sets: the new ones.
        at_start: whether `init` adds them.
    """
    for process_set in process_sets:
        if process_set.process_set_id is not None:
            raise ValueError(f"`process_set` is in use already: {process_set}.")
    numbers = loader.core().add_process_sets([_members(process_set) for process_set in process_sets], at_start)
    sets = get_process_set_ids_and_ranks()
    for process_set, number in zip(process_sets, numbers):
        if number > 0:
            process_set.process_set_id, process_set._ranks = number, list(sets[number])
            _in_use.append(process_set)
    for callback in after_change:
        callback()


def _members(process_set: ProcessSet) -> tuple[list[int], int]:
    """A set for the engine: its ranks, or the address of its MPI_Comm (else 0)."""
    if process_set.mpi_comm is None:
        return process_set.ranks or [], 0
    return [], sys.modules["mpi4py.MPI"]._addressof(process_set.mpi_comm)
