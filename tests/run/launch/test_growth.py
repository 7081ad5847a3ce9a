"""From the options of a command line, or the arguments of `run`, to the hosts and limits of a job that grows."""

from __future__ import annotations

import math
from typing import Any

import pytest

from smddp_tf.exceptions import LaunchError
from smddp_tf.run.hosts.hosts import Host
from smddp_tf.run.launch.growth import grows, growth_of, has_mpi, with_discovered_hosts

NONE: dict[str, Any] = dict.fromkeys(
    ("host_discovery_script", "num_proc", "min_np", "max_np", "elastic_timeout", "slots_per_host", "use_mpi")
)
OPTIONS = {**NONE, "blacklist_cooldown_range": None}


@pytest.mark.parametrize(
    ("given", "with_mpi"),
    [({}, True), ({"use_mpi": True}, True), ({"use_mpi": False}, False), ({"use_gloo": 1}, False)],
)
def test_jobs_without_mpi_grow_where_something_names_hosts(given: dict[str, Any], with_mpi: bool) -> None:
    assert has_mpi({**OPTIONS, **given}) == with_mpi
    assert not grows({**OPTIONS, **given})
    assert grows({**OPTIONS, **given, "host_discovery_script": "./hosts.sh"}) == (not with_mpi)


def test_hosts_of_a_script_and_of_a_function() -> None:
    script = {**OPTIONS, "host_discovery_script": "echo a:3; echo b", "slots_per_host": 2, "max_np": 4}
    found = with_discovered_hosts(script)
    assert (found["hosts"], found["num_proc"]) == ("a:3,b:2", 4)
    function = {**script, "host_discovery_script": lambda: {"c": 5, "d": 1}, "num_proc": 3}
    found = with_discovered_hosts(function)
    assert (found["hosts"], found["num_proc"]) == ("c:5,d:1", 3)
    assert with_discovered_hosts(OPTIONS) is OPTIONS


def test_limits() -> None:
    growth = growth_of(OPTIONS, 2)
    assert (growth.least, growth.most, growth.discover, growth.seconds, growth.cool_down) == (
        2,
        None,
        None,
        600,
        math.inf,
    )
    given = {"max_np": 7, "elastic_timeout": 9.0, "blacklist_cooldown_range": (4, 8)}
    growth = growth_of({**OPTIONS, **given, "host_discovery_script": lambda: {"e": 6}}, 3)
    assert (growth.least, growth.most, growth.seconds, growth.cool_down) == (3, 7, 9.0, 4)
    assert growth.discover is not None
    assert list(growth.discover(1.0)) == [Host("e", 6)]


def test_too_few_slots_name_who_was_asked() -> None:
    options = {**OPTIONS, "host_discovery_script": "echo a:1", "num_proc": 2, "elastic_timeout": 0.1}
    with pytest.raises(LaunchError, match=r"Expected 2 slots from .*echo a:1 within 0.1 s.*Received: a:1"):
        with_discovered_hosts(options)
