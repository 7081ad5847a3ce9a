"""`run(func)`: a function on every rank of a job that is started from Python."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from smddp_tf.exceptions import LaunchError

__all__ = ["RankError", "run"]


class RankError(Exception):
    """The cause of an exception that `run` raises: shows the traceback of the rank where it happened."""

    def __init__(self, rank: int, text: str) -> None:
        super().__init__(rank, text)
        self.rank, self.text = rank, text

    def __str__(self) -> str:
        return f"on rank {self.rank}:\n{self.text}"


def run(
    func: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    num_proc: int = 1,
    min_num_proc: int | None = None,
    max_num_proc: int | None = None,
    slots: int | None = None,
    reset_limit: int | None = None,
    cooldown_range: Sequence[int] | None = None,
    hosts: str | Sequence[str] | None = None,
    hostfile: str | None = None,
    host_discovery_script: str | Callable[[], Mapping[str, int]] | None = None,
    start_timeout: float | None = None,
    ssh_port: int | None = None,
    ssh_identity_file: str | None = None,
    disable_cache: bool | None = None,
    output_filename: str | None = None,
    verbose: int | None = None,
    use_gloo: bool | None = None,
    use_mpi: bool | None = None,
    mpi_args: str | None = None,
    network_interface: str | None = None,
    network_interfaces: str | Sequence[str] | None = None,
    executable: str | None = None,
    np: int | None = None,
    min_np: int | None = None,
    max_np: int | None = None,
) -> list[Any]:
    """Calls `func(*args, **kwargs)` on every rank of a new job and returns what they return.

    Call it from an ordinary program, not from a rank. The function is pickled by cloudpickle, so it may be a lambda or
    a closure; it calls `hvd.init()` itself.

    Example:
    >>> import smddp_tf.run
    >>> def add(base):
    ...     import smddp_tf as hvd
    ...
    ...     hvd.init()
    ...     return base + hvd.rank()
    >>> smddp_tf.run.run(add, args=(10,), num_proc=2)
    [10, 11]

    Args:
        func: what every rank calls.
        args, kwargs: its arguments, the same for all ranks.
        num_proc: number of ranks (`np` is the older name).
        hosts: `"host1:2,host2:2"`. Defaults to this host.
        hostfile: file with the same, one host in each line.
        slots: ranks of each host that does not say.
        start_timeout: seconds within which all ranks must have been started.
        ssh_port, ssh_identity_file: how ssh reaches the hosts.
        output_filename: folder for what the ranks print, as rank.N/stdout and rank.N/stderr.
        verbose: 1 prints the line that starts the ranks, 2 makes mpirun talk.
        mpi_args: more arguments for mpirun.
        network_interfaces: interfaces or networks to use, `"eth0,eth1"` or a list (`network_interface`: older name).
        executable: the ranks' Python. Defaults to this one.
        min_num_proc, max_num_proc: without MPI the job goes on in place (`hvd.elastic.run`) without ranks that it
            loses, as long as so many are left, and grows to at most so many (`min_np`, `max_np`: older names).
        host_discovery_script: without MPI, what names the hosts while the job runs, once a second: a shell's line that
            prints `host:slots`, or a function that returns `{"host1": 2}`. Then `hosts` and `hostfile` have no effect.
        cooldown_range: a slot in which a rank was lost is used again after the first of these two numbers of seconds.
        reset_limit: nothing; this function does not start a job again (`smddprun --elastic` does).
        use_mpi: True for MPI's launcher, False (or `use_gloo`) for ranks without MPI, which connect by TCP. Defaults to
            MPI's launcher where there is one.
        disable_cache: nothing.

    Returns:
        A list with the result of each rank, by rank; of a job whose ranks change, of those of the last session.

    Raises:
        LaunchError: the job cannot be started, or a rank ended without a result.
        Exception: what `func` raised on the rank that failed first; its `__cause__` shows that rank's traceback.
    """
    options = dict(locals())
    from smddp_tf.run.launch import growth, settings

    ranks = num_proc if np is None else np
    least, most = (min_np if min_num_proc is None else min_num_proc), (max_np if max_num_proc is None else max_num_proc)
    options.update(num_proc=ranks, min_np=least, max_np=most, slots_per_host=slots, elastic_timeout=None)
    options.update(blacklist_cooldown_range=cooldown_range, network_interfaces=network_interfaces or network_interface)
    discovers = growth.grows(options)
    changes = discovers or (not growth.has_mpi(options) and least is not None and least < ranks)
    if not changes:
        settings.check_elastic(ranks, least, most, options["host_discovery_script"], can_restart=False)
    elif discovers:
        options = {**growth.with_discovered_hosts(options), "num_proc": ranks, "hostfile": None}
    placed = settings.hosts_and_ranks(options, os.environ if options["hosts"] or options["hostfile"] else {})
    assert placed is not None
    job = settings.settings_of(options, *placed)
    growing = growth.growth_of(options, ranks if least is None else least) if changes else None
    return results_of(job, payload_of(func, args, kwargs or {}), executable or sys.executable, growing)


def payload_of(func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> bytes:
    """The function, pickled twice: this program's path is unpickled first, because the function may need it."""
    import cloudpickle

    try:
        return bytes(cloudpickle.dumps((list(sys.path), cloudpickle.dumps((func, tuple(args), dict(kwargs))))))
    except Exception as error:
        found = _not_picklable(func, args, kwargs) or ["the function, its arguments, or what it refers to"]
        raise LaunchError(
            f"This cannot be sent to the ranks: {', '.join(found)}: {type(error).__name__}: {error}. Make such things "
            "(locks, files, sessions) inside of the function."
        ) from error


def _not_picklable(func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[str]:
    """Which arguments, and which variables that the function's own code refers to, cannot be pickled."""
    import inspect  # not at the top: every rank's supervisor imports this module, with its package

    import cloudpickle

    function = inspect.unwrap(func)
    named = {f"argument {number}": value for number, value in enumerate(args)}
    named |= {f"argument {name!r}": value for name, value in kwargs.items()}
    with contextlib.suppress(TypeError, ValueError):  # it is no function of Python, or a variable has no value yet
        variables = inspect.getclosurevars(function)
        named |= {f"variable {name!r}": value for name, value in {**variables.globals, **variables.nonlocals}.items()}
    found = []
    for name, value in named.items():
        try:
            cloudpickle.dumps(value)
        except Exception:
            found.append(f"{name} ({type(value).__name__})")
    return found


def results_of(settings: Any, payload: bytes, python: str, growth: Any = None) -> list[Any]:
    """Returns the function's result of each rank of a job, in the order of ranks; raises what `run` raises."""
    import cloudpickle

    from smddp_tf.run.launch.launch import launch
    from smddp_tf.run.rank.processes import isolated

    outcome = launch(settings, isolated("smddp_tf.run.rank.task", python), payload, growth)
    failures = {rank: answer for rank, answer in outcome.results.items() if answer[:1] == b"-"}
    if failures:
        first = outcome.failed_rank if outcome.failed_rank in failures else next(iter(failures))
        error, text = cloudpickle.loads(failures[first][1:])
        raise error from RankError(first, text)
    ranks = outcome.members or range(settings.ranks)
    missing = [rank for rank in ranks if rank not in outcome.results]
    if outcome.code or missing:
        who = f"rank {outcome.failed_rank}" if outcome.failed_rank is not None else f"rank(s) {missing}"
        raise LaunchError(f"{who} of {len(ranks)} ended without a result, with exit code {outcome.code}.")
    return [cloudpickle.loads(outcome.results[rank][1:]) for rank in ranks]
