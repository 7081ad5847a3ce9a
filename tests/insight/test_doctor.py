"""What the doctor concludes from numbers: cores, memory within control groups, names; and how a line looks."""

from __future__ import annotations

from pathlib import Path

import pytest

from smddp_tf.insight.doctor import Finding, cores, memory_left, resolved

GIB = 2**30


@pytest.mark.parametrize(
    ("ranks", "mine", "of_host", "environment", "level", "advice"),
    [
        (2, 8, 8, {}, "ok", ""),
        (8, 1, 8, {}, "ok", ""),
        (2, 1, 8, {}, "warning", "mpirun --bind-to none"),
        (4, 2, 2, {}, "warning", "more ranks than cores"),
        (4, 8, 8, {}, "warning", "TF_NUM_INTRAOP_THREADS=2"),
        (4, 8, 8, {"OMP_NUM_THREADS": "2"}, "ok", ""),
    ],
)
def test_cores(ranks: int, mine: int, of_host: int, environment: dict[str, str], level: str, advice: str) -> None:
    finding = cores(environment, ranks, mine, of_host)
    assert finding.level == level, finding
    assert advice in finding.advice
    assert bool(finding.advice) == (level != "ok")
    assert all(f"{name}={value}" in finding.found for name, value in environment.items())


@pytest.mark.parametrize(
    ("folder", "limit", "used"),
    [
        ("", "memory.max", "memory.current"),
        ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
    ],
    ids=["version 2", "version 1"],
)
def test_memory_is_that_of_the_host_or_of_the_container(tmp_path: Path, folder: str, limit: str, used: str) -> None:
    group = tmp_path / "sys/fs/cgroup" / folder
    for place in (group, tmp_path / "proc"):
        place.mkdir(parents=True)
    (tmp_path / "proc/meminfo").write_text(f"MemTotal: 99 kB\nMemAvailable:   {7 * GIB >> 10} kB\n")
    assert memory_left(tmp_path) == 7 * GIB
    (group / used).write_text(f"{3 * GIB}\n")
    for most, left in (("max\n", 7 * GIB), (f"{4 * GIB}\n", GIB), (f"{2**63}\n", 7 * GIB)):
        (group / limit).write_text(most)
        assert memory_left(tmp_path) == left, most


def test_a_name_without_an_address_is_an_error() -> None:
    missing = resolved("no-such-host.invalid")
    assert missing.level == "error"
    assert "no-such-host.invalid" in missing.found
    assert "/etc/hosts" in missing.advice
    assert resolved("localhost").level == "ok"


def test_a_line_names_the_ranks_of_what_is_wrong() -> None:
    assert str(Finding("warning", "clock", "+3.00 s", "Run chrony.", (1, 3))).split() == (
        ["warning", "clock", "+3.00", "s", "[rank", "1,", "3]", "Run", "chrony."]
    )
    assert str(Finding("ok", "clock", "+0.00 s", "", (0, 1))).split() == ["ok", "clock", "+0.00", "s"]
