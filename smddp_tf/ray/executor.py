"""`RayExecutor`: a job whose ranks are actors of Ray, and stay for several functions."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from smddp_tf import aliases, basics
from smddp_tf.exceptions import LaunchError
from smddp_tf.lifecycle import assigned, uncaught
from smddp_tf.run.launch.function import RankError


def place(_: object = None) -> assigned.Place:
    """This process's place, as Ray knows it."""
    import ray

    return assigned.place(ray.util.get_node_ip_address(), ray.get_gpu_ids())


def begin(variables: Mapping[str, str], _: object = None) -> None:
    """Makes this process the rank whose variables these are."""
    assigned.take_place(os.environ, variables)
    aliases.install_inherited()


class _Worker:
    """The actor of a rank."""

    executable: Any = None

    def call(self, function: Callable[[_Worker], Any]) -> Any:
        try:
            return function(self)
        except BaseException:
            basics.shutdown()  # this process stays, so that the other ranks would wait for it
            raise


class RayExecutor:
    """Starts ranks as actors of Ray and calls functions on them, which call `hvd.init()`: docs/launching.md, Ray.

    Args:
        settings: of `create_settings`. `None`: the same without arguments.
        num_workers: number of ranks, on as few hosts as possible. Either this or `num_hosts`.
        num_hosts: number of hosts, with `num_workers_per_host` ranks each.
        num_workers_per_host: with `num_hosts`.
        cpus_per_worker: that Ray reserves for a rank.
        use_gpu: bool, reserves GPUs too. All ranks of a host see all of theirs: take `gpus[hvd.local_rank()]`.
        gpus_per_worker: with `use_gpu`. Defaults to 1.
        env_vars: more variables for the ranks.

    Raises:
        ImportError: Ray is not installed.
        ValueError: not exactly one of `num_workers` and `num_hosts` is given.
    """

    def __init__(
        self,
        settings: Mapping[str, int] | None = None,
        num_workers: int | None = None,
        num_hosts: int | None = None,
        num_workers_per_host: int = 1,
        cpus_per_worker: int = 1,
        use_gpu: bool = False,
        gpus_per_worker: int | None = None,
        env_vars: Mapping[str, str] | None = None,
    ) -> None:
        try:
            import ray
        except ImportError as error:
            raise ImportError("RayExecutor needs Ray: pip install ray") from error
        if bool(num_workers) == bool(num_hosts):
            raise ValueError("Expected: either `num_workers` or `num_hosts` (with `num_workers_per_host`).")
        self._ray: Any = ray
        self._settings, self._variables = settings or self.create_settings(), env_vars or {}
        self._strategy, self._in_bundle = ("STRICT_SPREAD", num_workers_per_host) if num_hosts else ("PACK", 1)
        self.num_workers = (num_hosts or num_workers or 0) * self._in_bundle
        self._cpus, self._gpus = cpus_per_worker, (gpus_per_worker or 1) if use_gpu else 0
        self._group, self._workers = None, list[Any]()

    @staticmethod
    def create_settings(
        timeout_s: int = 300, placement_group_timeout_s: int = 100, **without_effect: object
    ) -> dict[str, int]:
        """Makes the settings.

        Args:
            timeout_s: seconds within which all ranks must have called `hvd.init()`.
            placement_group_timeout_s: seconds within which Ray must have reserved the resources.
            without_effect: Horovod's other ones.

        Returns:
            The first argument of `RayExecutor`.
        """
        return {"timeout": timeout_s, "placement_group_timeout": placement_group_timeout_s}

    def start(
        self,
        executable_cls: Callable[..., Any] | None = None,
        executable_args: Sequence[Any] | None = None,
        executable_kwargs: Mapping[str, Any] | None = None,
        extra_env_vars: Mapping[str, str] | None = None,
    ) -> None:
        """Starts the actors.

        Args:
            executable_cls: a class of which each rank makes an object, for `execute`.
            executable_args, executable_kwargs: its arguments.
            extra_env_vars: more variables for the ranks.

        Raises:
            LaunchError: Ray does not have the resources in time.
            Exception: what `executable_cls` has raised, as `run`.
        """
        shared = {**assigned.variables_of_job(self._settings["timeout"]), **self._variables, **(extra_env_vars or {})}
        try:
            self._workers = self._actors()
            variables = assigned.variables_of_ranks(self._results(self._remote(place)))
            by_rank = sorted(zip(variables, self._workers), key=lambda each: int(each[0]["RANK"]))
            self._workers = [worker for _, worker in by_rank]
            self._results([worker.call.remote(functools.partial(begin, {**shared, **own})) for own, worker in by_rank])
            if executable_cls is not None:
                make = functools.partial(executable_cls, *(executable_args or ()), **(executable_kwargs or {}))
                self._results(self._remote(lambda worker: setattr(worker, "executable", make())))
        except BaseException:
            self.shutdown()
            raise

    def _actors(self) -> list[Any]:
        """Reserves the resources and starts the processes, in no order."""
        each, count = self._in_bundle, self.num_workers // self._in_bundle
        bundle = {"CPU": self._cpus * each, "GPU": self._gpus * each}
        group = self._group = self._ray.util.placement_group([bundle] * count, strategy=self._strategy)
        if not group.wait(self._settings["placement_group_timeout"]):
            free = self._ray.available_resources()
            raise LaunchError(f"Ray has no room for {count} x {bundle} ({self._strategy}). Free are: {free}.")
        kind = self._ray.remote(num_cpus=self._cpus, num_gpus=self._gpus)(_Worker)
        strategy = self._ray.util.scheduling_strategies.PlacementGroupSchedulingStrategy
        places = [strategy(group, number // each) for number in range(self.num_workers)]
        return [kind.options(scheduling_strategy=place).remote() for place in places]

    def run(
        self, fn: Callable[..., Any], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> list[Any]:
        """Calls `fn(*args, **kwargs)` on every rank.

        Args:
            fn: the function.
            args, kwargs: its arguments, the same for all ranks.

        Returns:
            A list with the result of each rank, by rank.

        Raises:
            Exception: what `fn` has raised on the rank that failed first; its `__cause__` names the rank and shows its
                traceback. Of a rank that has died: Ray's `RayActorError`, with the same cause.
        """
        return self._results(self.run_remote(fn, args, kwargs))

    def run_remote(
        self, fn: Callable[..., Any], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> list[Any]:
        """Calls `fn(*args, **kwargs)` on every rank and does not wait.

        Args:
            fn, args, kwargs: as for `run`.

        Returns:
            A list of Ray's references to the results, by rank, for `ray.get`.
        """
        return self._remote(lambda _: fn(*(args or ()), **(kwargs or {})))

    def execute(self, fn: Callable[[Any], Any]) -> list[Any]:
        """Calls `fn(object)` on every rank, with its object of `executable_cls`.

        Args:
            fn: the function.

        Returns:
            A list with the result of each rank, by rank. Raises as `run`.
        """
        return self._results(self._remote(lambda worker: fn(worker.executable)))

    def execute_single(self, fn: Callable[[Any], Any]) -> Any:
        """Calls `fn(object)` on rank 0 alone.

        Args:
            fn: the function.

        Returns:
            Its result. Raises as `run`.
        """
        return self._results(self._remote(lambda worker: fn(worker.executable), 1))[0]

    def shutdown(self) -> None:
        """Ends the actors, whatever they do, and returns the resources. `start` may follow."""
        for worker in self._workers:
            self._ray.kill(worker)
        if self._group is not None:
            self._ray.util.remove_placement_group(self._group)
        self._group, self._workers = None, []

    def _remote(self, function: Callable[[_Worker], Any], most: int | None = None) -> list[Any]:
        if not self._workers:
            raise LaunchError("There are no ranks: call `start` first.")
        return [worker.call.remote(function) for worker in self._workers[:most]]

    def _results(self, answers: list[Any]) -> list[Any]:
        """Waits for all; raises the error of the first rank that has failed by itself, or else of the first."""
        waiting, causes = list(answers), list[BaseException]()
        while waiting and all(map(uncaught.is_consequence, causes)):
            done, waiting = self._ray.wait(waiting, timeout=assigned.CAUSE_SECONDS if causes else None)
            try:
                self._ray.get(done)
            except self._ray.exceptions.RayError as error:
                causes.append(getattr(error, "cause", None) or error)
                causes[-1].__cause__ = RankError(answers.index(done[0]), str(error))
            waiting = done and waiting  # none is done: the others may wait for ever
        for cause in sorted(causes, key=uncaught.is_consequence):
            raise cause
        return list(self._ray.get(answers))
