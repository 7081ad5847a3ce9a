"""`RayExecutor` on a stand-in for Ray, whose actors are objects of this process; with Ray: tests/starters."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from smddp_tf.exceptions import LaunchError
from smddp_tf.ray import RayExecutor
from smddp_tf.ray import executor as module
from smddp_tf.run.launch.function import RankError


class Failure(Exception):
    """Ray's error for a function that has raised `cause`; without one, for an actor that has died."""

    def __init__(self, cause: BaseException | None = None) -> None:
        super().__init__(f"in an actor: {cause}")
        self.cause = cause


class Hangs(Exception):
    """A call that raises this has no answer."""


class Ray:
    """A call of an actor is made at once; its answer is what it has returned, or a Failure, which `get` raises.

    Attributes:
        has_room: for placement groups.
        reserved, removed, killed: the placement groups (bundles, strategy), and actors.
        here: of the actor that is called: its number.
        timeouts: of `wait`.
    """

    def __init__(self, hosts: list[str]) -> None:
        self.has_room, self.here = True, -1
        self.reserved, self.removed, self.killed = list[Any](), list[Any](), list[int]()
        self.resources, self.bundles = list[dict[str, int]](), list[int]()
        self.exceptions, self.timeouts = SimpleNamespace(RayError=Failure), list[Any]()
        self.util = SimpleNamespace(
            placement_group=self._reserve, remove_placement_group=self.removed.append,
            get_node_ip_address=lambda: hosts[self.here],
            scheduling_strategies=SimpleNamespace(PlacementGroupSchedulingStrategy=lambda _group, bundle: bundle),
        )  # fmt: skip

    def _reserve(self, bundles: list[dict[str, int]], strategy: str) -> Any:
        self.reserved.append((bundles, strategy))
        return SimpleNamespace(wait=lambda _seconds: self.has_room)

    def available_resources(self) -> dict[str, int]:
        return {"CPU": 1}

    def get_gpu_ids(self) -> list[int]:
        return [self.here + 4] if self.resources[0]["num_gpus"] else []

    def remote(self, **resources: int) -> Callable[[type], Any]:
        self.resources.append(resources)
        return lambda kind: SimpleNamespace(
            options=lambda scheduling_strategy: self._options(kind, scheduling_strategy)
        )

    def _options(self, kind: type, bundle: int) -> Any:
        self.bundles.append(bundle)
        return SimpleNamespace(remote=lambda: self._actor(kind(), len(self.bundles) - 1))

    def _actor(self, actor: Any, number: int) -> Any:
        def call(function: Any) -> Any:
            self.here = number
            try:
                return actor.call(function)
            except Failure as died:
                return died
            except Exception as error:
                return Failure(error)

        return SimpleNamespace(call=SimpleNamespace(remote=call), number=number)

    def kill(self, actor: Any) -> None:
        self.killed.append(actor.number)

    def wait(self, answers: list[Any], timeout: float | None) -> tuple[list[Any], list[Any]]:
        done = [n for n, answer in enumerate(answers) if not isinstance(getattr(answer, "cause", None), Hangs)][:1]
        assert done or timeout, "waits for ever"
        self.timeouts.append(timeout)
        return [answers[n] for n in done], [answer for n, answer in enumerate(answers) if n not in done]

    def get(self, answers: list[Any]) -> list[Any]:
        for answer in answers:
            if isinstance(answer, Failure):
                raise answer
        return answers


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> Ray:
    ray: Any = Ray(["h2", "h1", "h2", "h1"])
    monkeypatch.setitem(sys.modules, "ray", ray)
    return ray


@pytest.fixture
def begun(ray: Ray, monkeypatch: pytest.MonkeyPatch) -> dict[int, Mapping[str, str]]:
    """The variables that each actor has got, by its number."""
    begun: dict[int, Mapping[str, str]] = {}
    monkeypatch.setattr(module.assigned, "take_place", lambda _, variables: begun.update({ray.here: variables}))
    monkeypatch.delenv("SMDDP_AS", raising=False)
    return begun


def test_ranks_by_host(ray: Ray, begun: dict[int, Mapping[str, str]]) -> None:
    executor = RayExecutor(RayExecutor.create_settings(timeout_s=7), num_workers=4, env_vars={"A": "1", "B": "1"})
    executor.start(extra_env_vars={"B": "2"})
    assert ray.reserved == [([{"CPU": 1, "GPU": 0}] * 4, "PACK")]
    assert ray.bundles == [0, 1, 2, 3]
    assert [int(begun[actor]["SMDDP_RANK"]) for actor in range(4)] == [0, 2, 1, 3]
    assert [int(begun[actor]["LOCAL_RANK"]) for actor in range(4)] == [0, 0, 1, 1]
    assert len({begun[actor]["SMDDP_SECRET"] for actor in range(4)}) == 1
    names = ("A", "B", "SMDDP_AS", "SMDDP_START_TIMEOUT", "CUDA_VISIBLE_DEVICES")
    assert [begun[3].get(name) for name in names] == ["1", "2", "", "7", None]
    assert executor.run(lambda base: base + ray.here, args=[10]) == [10, 12, 11, 13]  # by rank
    assert executor.run(lambda base=0: base + ray.here, kwargs={"base": 20}) == [20, 22, 21, 23]
    executor.shutdown()
    assert ray.killed == [0, 2, 1, 3]
    assert len(ray.removed) == 1


def test_hosts_with_gpus_and_objects(ray: Ray, begun: dict[int, Mapping[str, str]]) -> None:
    executor = RayExecutor(num_hosts=2, num_workers_per_host=2, use_gpu=True, cpus_per_worker=3)
    executor.start(dict, [[("a", 1)]], {"b": 2}, {})
    assert ray.reserved == [([{"CPU": 6, "GPU": 2}] * 2, "STRICT_SPREAD")]
    assert ray.bundles == [0, 0, 1, 1]
    assert ray.resources == [{"num_cpus": 3, "num_gpus": 1}]
    assert [begun[actor]["CUDA_VISIBLE_DEVICES"] for actor in range(4)] == ["4,6", "5,7", "4,6", "5,7"]
    assert executor.execute(lambda made: (ray.here, made)) == [(actor, {"a": 1, "b": 2}) for actor in (0, 2, 1, 3)]
    assert executor.execute_single(lambda made: (ray.here, made["b"])) == (0, 2)


def left() -> RuntimeError:
    return RuntimeError("Rank 2 has left [smddp:peer_left]")


@pytest.mark.parametrize(
    ("raised", "rank", "text", "waits"),
    [
        ({1: ValueError("broken")}, 1, "in an actor: broken", [None, None]),
        ({0: left(), 1: left(), 2: KeyError("cause"), 3: left()}, 2, "in an actor: 'cause'", [None, 15, 15]),
        ({0: left(), 1: Failure()}, 1, "in an actor: None", [None, 15]),
        ({0: left(), 3: left()}, 0, "in an actor: Rank 2 has left", [None, 15, 15, 15]),
        ({0: Hangs(), 1: ValueError("early"), 2: Hangs(), 3: Hangs()}, 1, "in an actor: early", [None]),
        ({0: Hangs(), 1: Hangs(), 2: left(), 3: Hangs()}, 2, "in an actor: Rank 2 has left", [None, 15]),
    ],
)
@pytest.mark.usefixtures("begun")
def test_the_rank_that_failed_first_is_named(
    ray: Ray, raised: dict[int, Exception], rank: int, text: str, waits: list[Any]
) -> None:
    executor = RayExecutor(num_workers=4)
    executor.start()
    order = executor.run(lambda: ray.here)

    def fail() -> None:
        if error := raised.get(order.index(ray.here)):
            raise error

    ray.timeouts.clear()
    with pytest.raises(type(raised[rank])) as found:
        executor.run(fail)
    assert ray.timeouts == waits
    assert found.value is raised[rank]
    assert isinstance(found.value.__cause__, RankError)
    assert found.value.__cause__.rank == rank
    assert text in found.value.__cause__.text


@pytest.mark.usefixtures("begun")
def test_a_start_that_fails_leaves_nothing(ray: Ray) -> None:
    executor = RayExecutor(num_workers=2)
    with pytest.raises(ZeroDivisionError):
        executor.start(lambda: 1 // 0)
    assert (ray.killed, len(ray.removed)) == ([0, 1], 1)
    ray.has_room = False
    with pytest.raises(LaunchError, match=r"no room for 2 x \{'CPU': 1, 'GPU': 0\} \(PACK\). Free are: \{'CPU': 1\}"):
        executor.start()
    assert len(ray.removed) == 2
    for call in (executor.run, executor.run_remote, executor.execute, executor.execute_single):
        with pytest.raises(LaunchError, match="call `start` first"):
            call(print)


def test_arguments(ray: Ray, monkeypatch: pytest.MonkeyPatch) -> None:
    for numbers in ({}, {"num_workers": 2, "num_hosts": 1}):
        with pytest.raises(ValueError, match="either `num_workers` or `num_hosts`"):
            RayExecutor(RayExecutor.create_settings(ssh_str="x"), **numbers)
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError, match="pip install ray"):
        RayExecutor(num_workers=2)


def test_a_rank_that_fails_ends_its_session(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = []
    monkeypatch.setattr(module.basics, "shutdown", lambda: ended.append("session"))
    worker = module._Worker()
    assert worker.call(lambda _: 3) == 3
    assert not ended
    with pytest.raises(KeyError):
        worker.call(lambda actor: {}[actor])
    assert ended == ["session"]
